//! `e2e`: build the product, the simulator and a real Kubernetes, then hand over to `e2e/`.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::build::{self, Profile, programs, root, target_dir};

/// Runs the scenarios whose names contain one of the arguments; all without any.
pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let built = programs(Profile::Dev)?;
    build::run(build::cargo().args(["build", "--package", "mpshare-e2e"]))?;
    let output = target_dir().join("e2e");
    let tools = output.join("bin");
    eprintln!(
        "building Kubernetes, etcd and Helm, unless they are there; the first time takes minutes"
    );
    for script in ["build", "build-helm"] {
        build::run(Command::new(root().join("e2e/cluster").join(script)).arg(&tools))?;
    }
    let program = built.join("mpshare-e2e");
    let mut runner = Command::new(&program);
    runner.arg("run").arg("--repository").arg(root()).arg("--programs").arg(tools);
    runner.arg("--built").arg(&built).arg("--output").arg(output).args(args);
    // In place of this process, so that signals reach the one that has to clean up.
    Err(runner.exec()).with_context(|| format!("can't start `{}`", program.display()))
}
