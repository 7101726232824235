//! `e2e`: build the product, the simulator and a real Kubernetes, then hand over to `e2e/`.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::build::{self, Profile, programs, root, target_dir};

/// Runs the scenarios whose names contain one of the arguments; all without any.
pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    start(args)
}

/// Runs a campaign on the real cluster: `--cluster [--seed N] [--minutes M]`.
pub(crate) fn campaign(args: &[String]) -> Result<ExitCode> {
    let after = |name: &str| args.iter().skip_while(|arg| *arg != name).nth(1).cloned();
    let minutes = after("--minutes").unwrap_or_else(|| "30".to_owned());
    let seed = after("--seed").unwrap_or_else(|| "1".to_owned());
    start(&["--campaign".to_owned(), minutes, "--seed".to_owned(), seed])
}

fn start(args: &[String]) -> Result<ExitCode> {
    let built = programs(Profile::Dev)?;
    build::run(build::cargo().args(["build", "--package", "mpshare-e2e"]))?;
    let output = target_dir().join("e2e");
    let tools = tools(&["build", "build-helm"])?;
    let program = built.join("mpshare-e2e");
    let mut runner = Command::new(&program);
    runner.arg("run").arg("--repository").arg(root()).arg("--programs").arg(tools);
    runner.arg("--built").arg(&built).arg("--output").arg(output).args(args);
    // In place of this process, so that signals reach the one that has to clean up.
    Err(runner.exec()).with_context(|| format!("can't start `{}`", program.display()))
}

/// Measures what kube-scheduler binds with our extender, on a real control plane.
pub(crate) fn bench_extender(args: &[String]) -> Result<ExitCode> {
    build::product()?;
    build::run(build::cargo().args(["build", "--package", "mpshare-e2e"]))?;
    let mut runner = Command::new(target_dir().join("debug/mpshare-e2e"));
    runner.arg("bench-extender").arg("--built").arg(target_dir().join("release"));
    runner.arg("--logs").arg(target_dir().join("e2e/logs-bench"));
    if !args.iter().any(|arg| arg.starts_with("--programs")) {
        runner.arg("--programs").arg(tools(&["build"])?);
    }
    runner.args(args.iter().filter(|arg| *arg != "--cluster"));
    Err(runner.exec()).context("can't start `mpshare-e2e`")
}

/// Builds Kubernetes and what belongs to it, and returns the directory where it is.
fn tools(scripts: &[&str]) -> Result<PathBuf> {
    let tools = target_dir().join("e2e/bin");
    eprintln!(
        "building Kubernetes, etcd and Helm, unless they are there; the first time takes minutes"
    );
    for script in scripts {
        build::run(Command::new(root().join("e2e/cluster").join(script)).arg(&tools))?;
    }
    Ok(tools)
}
