//! `demo`, `chaos` and `bench`: build, then hand over to the program in `demo/`.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::build::{Profile, programs, target_dir};
use crate::e2e;

/// The story of the simulated node.
pub(crate) fn demo(args: &[String]) -> Result<ExitCode> {
    start(Profile::Dev, "story", args)
}

/// A campaign of faults.
pub(crate) fn chaos(args: &[String]) -> Result<ExitCode> {
    if args.iter().any(|arg| arg == "--cluster") {
        return e2e::campaign(args);
    }
    start(Profile::Dev, "chaos", args)
}

/// A benchmark, with the release build.
pub(crate) fn bench(what: &str, args: &[String]) -> Result<ExitCode> {
    match what {
        "node" => start(Profile::Release, "bench", args),
        "supervisor" => start(Profile::Release, "bench-supervisor", args),
        "extender" if args.iter().any(|arg| arg == "--cluster") => e2e::bench_extender(args),
        "extender" => start(Profile::Release, "bench-extender", args),
        "webhook" => start(Profile::Release, "bench-webhook", args),
        _ => bail!(
            "unknown benchmark `{what}`; hint: there are `node`, `supervisor`, `extender` and `webhook`"
        ),
    }
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
