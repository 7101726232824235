//! Link arguments of the binary.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // A position-independent Rust binary of this size carries half a megabyte of relocations, and
    // each of three processes per node reads them all. Packed they are a few pages. Needs glibc
    // 2.36 at run time, which is what a binary built on Debian 12 needs anyway.
    if std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu") {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
