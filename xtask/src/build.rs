//! Building what a task needs, with cargo's own progress.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A cargo profile.
#[derive(Clone, Copy)]
pub(crate) enum Profile {
    /// Fast to build; demo and tests.
    Dev,
    /// What users run; benchmarks.
    Release,
}

/// What users run.
const PRODUCT: [&str; 2] = ["mpshare", "mpshare-kubectl"];

/// Programs and libraries of the simulator; tests and demo start them as processes.
const SIMULATOR: [&str; 6] = [
    "mpshare-sim-mps",
    "mpshare-sim-runtime",
    "mpshare-sim-tools",
    "mpshare-sim-nvml",
    "mpshare-sim-cuda",
    "mpshare-demo",
];

/// Builds all programs and returns the directory where they are.
pub(crate) fn programs(profile: Profile) -> Result<PathBuf> {
    match profile {
        Profile::Dev => {
            build(&[&PRODUCT[..], &SIMULATOR[..]].concat(), &[])?;
            Ok(target_dir().join("debug"))
        }
        // One after the other: in one, the product would get the features of its dependencies that
        // only others want, and be measured with code that users don't have.
        Profile::Release => {
            product()?;
            build(&SIMULATOR, &["--release"])?;
            Ok(target_dir().join("release"))
        }
    }
}

/// Builds what users run, as they get it.
pub(crate) fn product() -> Result<()> {
    PRODUCT.iter().try_for_each(|package| build(&[*package], &["--release"]))
}

/// Builds packages for development.
pub(crate) fn build_packages(packages: &[&str]) -> Result<()> {
    build(packages, &[])
}

fn build(packages: &[&str], arguments: &[&str]) -> Result<()> {
    let mut cargo = cargo();
    cargo.arg("build").args(arguments);
    for package in packages {
        cargo.args(["--package", package]);
    }
    run(&mut cargo)
}

/// The cargo that runs this task.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    cargo
}

/// Runs a command to its end; an error names it.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("can't start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}

/// The repository.
pub(crate) fn root() -> PathBuf {
    let xtask = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().map_or_else(|| xtask.clone(), PathBuf::from)
}

/// Cargo's target directory.
pub(crate) fn target_dir() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}
