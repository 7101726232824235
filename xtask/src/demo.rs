//! `demo` and `bench`: build, then hand over to the program in `demo/`.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::build::{Profile, programs};

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
    let program = programs(profile)?.join("mpshare-demo");
    let status = Command::new(&program)
        .arg(task)
        .args(args)
        .status()
        .with_context(|| format!("can't start `{}`", program.display()))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
