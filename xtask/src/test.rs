//! `test`: everything that decides whether a change is good, one step after the other.

use std::collections::BTreeSet;
use std::env;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::build::{self, Profile, cargo, programs};
use crate::{gpu, tidy};

/// The only reason for a skipped test that a CI machine may have: it can't be installed.
const MAY_SKIP_IN_CI: &str = "no GPU";

/// Runs all steps; stops at the first that fails.
pub(crate) fn run() -> Result<ExitCode> {
    step("tidy", || tidy::run().map(drop))?;
    step("format", || build::run(cargo().args(["fmt", "--all", "--check"])))?;
    // Integration tests start these as processes; cargo builds no program of another package.
    step("build", || programs(Profile::Dev).map(drop))?;
    step("lints", || {
        let arguments = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
        build::run(cargo().args(arguments))
    })?;
    step("docs", || {
        let mut docs = cargo();
        docs.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
        build::run(&mut docs)
    })?;
    step("tests", tests)?;
    step("gpu suite", gpu::check)?;
    Ok(ExitCode::SUCCESS)
}

fn step(name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let start = Instant::now();
    println!("==> {name}");
    work()?;
    println!("==> {name}: ok, {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// All tests; what was skipped is said at the end, where people see it.
fn tests() -> Result<()> {
    let mut command = cargo();
    command.args(["test", "--workspace", "--no-fail-fast", "--", "--show-output"]);
    // Tests of whole nodes wait most of the time: more of them than cores.
    command.env("RUST_TEST_THREADS", "4");
    let skipped = run_watching(&mut command)?;
    for reason in &skipped {
        println!("{reason}");
    }
    let is_ci = env::var_os("CI").is_some();
    if let Some(reason) = skipped.iter().find(|reason| is_ci && !reason.contains(MAY_SKIP_IN_CI)) {
        bail!("a test was skipped that CI could have run: {reason}");
    }
    Ok(())
}

/// Runs tests and passes their output on, but for what passing tests print; returns why tests
/// were skipped.
fn run_watching(command: &mut Command) -> Result<BTreeSet<String>> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("can't start {command:?}"))?;
    let mut skipped = BTreeSet::new();
    let mut is_of_passed = false;
    for line in BufReader::new(child.stdout.take().context("no output")?).lines() {
        let line = line?;
        is_of_passed = match line.as_str() {
            "successes:" => true,
            "failures:" => false,
            text => is_of_passed && !text.starts_with("test result:"),
        };
        if line.starts_with("skipped:") {
            skipped.insert(line);
        } else if !is_of_passed {
            println!("{line}");
        }
    }
    let status = child.wait()?;
    if !status.success() {
        for reason in &skipped {
            println!("{reason}");
        }
        bail!("{command:?} ended with {status}");
    }
    Ok(skipped)
}
