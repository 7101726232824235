//! `fuzz`: any bytes into what reads the bytes of others, with libFuzzer, coverage guided.
//!
//! The targets are a workspace of their own in `fuzz/`, which no other task builds. The flags are those
//! of `cargo fuzz` without the address sanitizer, whose runtime comes with nightly toolchains only:
//! there is no `unsafe` in what is tried. The pass for coverage is a compiler option that stable
//! toolchains hide behind `RUSTC_BOOTSTRAP`.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::build::{self, cargo, root, target_dir};

/// What makes libFuzzer see edges and what is compared.
const COVERAGE: [&str; 7] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "--cfg fuzzing",
    "-Ccodegen-units=1",
];

/// The most seconds that one input may take.
const HANGS: &str = "-timeout=10";

#[derive(Args)]
pub(crate) struct Options {
    /// One of `fuzz/targets`; all, one after the other, without.
    target: Option<String>,
    /// How long each runs.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
}

/// Builds the targets and runs them; what makes one fail is kept, and its path is printed.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let known = targets()?;
    let chosen: Vec<&String> =
        known.iter().filter(|name| options.target.as_ref().is_none_or(|it| it == *name)).collect();
    if chosen.is_empty() {
        bail!("no such target; hint: there are `{}`", known.join("`, `"));
    }
    let triple = host()?;
    // Not beside what others build: these flags are of all packages.
    let built = target_dir().join("fuzz");
    build(&triple, &built)?;
    for name in chosen {
        let program = built.join(&triple).join("release").join(name);
        fuzz(&program, name, options.seconds)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn targets() -> Result<Vec<String>> {
    let folder = root().join("fuzz/targets");
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}

/// The platform. Told to cargo, it makes build scripts and macros go without the flags.
fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("can't start rustc")?;
    let text = String::from_utf8(output.stdout).context("rustc -vV")?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}

fn build(triple: &str, built: &Path) -> Result<()> {
    let mut cargo = cargo();
    cargo.args(["build", "--release", "--bins", "--target", triple]);
    cargo.arg("--manifest-path").arg(root().join("fuzz/Cargo.toml"));
    cargo.arg("--target-dir").arg(built);
    cargo.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", COVERAGE.join(" "));
    build::run(&mut cargo)
}

fn fuzz(program: &Path, name: &str, seconds: u32) -> Result<()> {
    // What it finds stays for the next time; what is committed is only a beginning.
    let found = target_dir().join("fuzz/corpus").join(name);
    let failures = target_dir().join("fuzz/failures").join(name);
    for folder in [&found, &failures] {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    println!("==> {name}: {seconds} s; what makes it fail is kept in {}", failures.display());
    let mut fuzzer = Command::new(program);
    fuzzer.arg(&found).arg(root().join("fuzz/corpus").join(name));
    fuzzer.arg(format!("-max_total_time={seconds}")).arg(HANGS).arg("-print_final_stats=1");
    fuzzer.arg(format!("-artifact_prefix={}/", failures.display()));
    build::run(&mut fuzzer)
}
