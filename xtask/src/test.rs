//! `test`: everything that decides whether a change is good, one step after the other.

use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::Result;

use crate::build::{self, Profile, cargo, programs};
use crate::tidy;

/// Runs all steps; stops at the first that fails.
pub(crate) fn run() -> Result<ExitCode> {
    step("tidy", || tidy::run().map(drop))?;
    step("format", || {
        build::run(cargo().args(["fmt", "--all", "--check"]))
    })?;
    // Integration tests start these as processes; cargo builds no program of another package.
    step("build", || programs(Profile::Dev).map(drop))?;
    step("lints", || {
        build::run(cargo().args([
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ]))
    })?;
    step("tests", || {
        build::run(cargo().args(["test", "--workspace", "--no-fail-fast"]))
    })?;
    step("docs", || {
        build::run(deny_warnings(cargo().args([
            "doc",
            "--workspace",
            "--no-deps",
        ])))
    })?;
    Ok(ExitCode::SUCCESS)
}

fn deny_warnings(command: &mut Command) -> &mut Command {
    command.env("RUSTDOCFLAGS", "-D warnings")
}

fn step(name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let start = Instant::now();
    println!("==> {name}");
    work()?;
    println!("==> {name}: ok, {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}
