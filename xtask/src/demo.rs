//! `demo` and `bench`: build, then hand over to the program in `demo/`.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::build::{Profile, programs, target_dir};

/// The story of the simulated node.
pub(crate) fn demo(args: &[String]) -> Result<ExitCode> {
    start(Profile::Dev, "story", args)
}

/// A benchmark on the simulated node, with the release build.
pub(crate) fn bench(what: &str, args: &[String]) -> Result<ExitCode> {
    anyhow::ensure!(what == "node", "unknown benchmark `{what}`; hint: there is `node`");
    start(Profile::Release, "bench", args)
}

fn start(profile: Profile, task: &str, args: &[String]) -> Result<ExitCode> {
    let first = if target_dir().join("debug/mpshare").exists() {
        ""
    } else {
        "; the first time takes some minutes"
    };
    eprintln!("building the product and the simulated node{first}");
    let program = programs(profile)?.join("mpshare-demo");
    // In place of this process, so that signals reach the one that has to clean up.
    let error = Command::new(&program).arg(task).args(args).exec();
    Err(error).with_context(|| format!("can't start `{}`", program.display()))
}
