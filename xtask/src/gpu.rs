//! `gpu`: what the product relies on, tried on this machine's card, or on the simulated one.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};

use crate::build::{self, Profile, build_packages, programs, target_dir};

const SUITE: &str = "mpshare-gpu-suite";

/// Runs the suite with these arguments.
pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    if args.iter().any(|arg| arg == "--simulator") {
        programs(Profile::Dev)?;
    } else {
        build_packages(&["mpshare"])?;
    }
    let mut suite = suite(args)?;
    // In place of this process, so that signals reach the one that has to put things back.
    Err(suite.exec()).with_context(|| format!("can't start {suite:?}"))
}

/// Runs the suite on the simulated card; that of this machine is only looked for, since somebody may
/// be at work with it. Everything but the suite is built.
pub(crate) fn check() -> Result<()> {
    build::run(&mut suite(&["--simulator".to_owned()])?)?;
    build::run(&mut suite(&["--look".to_owned()])?)
}

fn suite(args: &[String]) -> Result<Command> {
    build_packages(&[SUITE])?;
    let mut command = Command::new(target_dir().join("debug").join(SUITE));
    command.arg("run").args(args);
    Ok(command)
}
