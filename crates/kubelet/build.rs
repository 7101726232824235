//! Compiles the two protos in pure Rust: no `protoc` is needed.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let protos = ["device_plugin.proto", "pod_resources.proto"];
    let descriptors = protox::compile(protos, ["proto"])?;
    // Ordered maps: equal replies are equal bytes.
    tonic_prost_build::configure().btree_map(".").compile_fds(descriptors)?;
    Ok(())
}
