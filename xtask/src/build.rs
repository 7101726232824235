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

/// Product and simulator programs and libraries; tests and demo start them as processes.
const PROGRAMS: [&str; 6] = [
    "mpshare",
    "mpshare-sim-mps",
    "mpshare-sim-tools",
    "mpshare-sim-nvml",
    "mpshare-sim-cuda",
    "mpshare-demo",
];

/// Builds all programs and returns the directory where they are.
pub(crate) fn programs(profile: Profile) -> Result<PathBuf> {
    let mut cargo = cargo();
    cargo.arg("build");
    for package in PROGRAMS {
        cargo.args(["--package", package]);
    }
    let folder = match profile {
        Profile::Dev => "debug",
        Profile::Release => {
            cargo.arg("--release");
            "release"
        }
    };
    run(&mut cargo)?;
    Ok(target_dir().join(folder))
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
