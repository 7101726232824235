//! `-d`: the starter runs the program again in a session of its own and waits until that one
//! listens or gives up.
//!
//! Rust programs can't fork safely, so the second process is a fresh one with the same arguments,
//! told by a variable what it is. It reports in one message on its standard output, then lets go of
//! that.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

/// Tells the second process what it is.
const BACKGROUND_ENV: &str = "MPSHARE_SIM_MPS_BACKGROUND";

/// Begins the report of a daemon that listens.
const LISTENING: &str = "listening\n";

/// The variable that servers mustn't inherit.
pub(crate) const PRIVATE_ENV: &str = BACKGROUND_ENV;

/// Whether this process is the daemon that [`start`] began.
pub(crate) fn is_background() -> bool {
    std::env::var_os(BACKGROUND_ENV).is_some()
}

/// Starts the daemon and returns the starter's exit code once it listens.
pub(crate) fn start(arguments: &[String]) -> ExitCode {
    let Ok(report) = run_again(arguments) else {
        return ExitCode::FAILURE;
    };
    if let Some(warning) = report.strip_prefix(LISTENING) {
        complain(warning);
        return ExitCode::SUCCESS;
    }
    complain(&report);
    ExitCode::FAILURE
}

/// Writes to standard error what there is to say.
pub(crate) fn complain(text: &str) {
    let text = text.trim_end();
    if !text.is_empty() {
        // Nobody reads: nothing to tell.
        drop(writeln!(std::io::stderr(), "{text}"));
    }
}

fn run_again(arguments: &[String]) -> std::io::Result<String> {
    let program = std::env::args_os().next().unwrap_or_default();
    let mut child = Command::new(std::env::current_exe()?)
        .arg0(program)
        .args(arguments)
        .env(BACKGROUND_ENV, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut report = String::new();
    if let Some(mut out) = child.stdout.take() {
        out.read_to_string(&mut report)?;
    }
    Ok(report)
}

/// Tells the starter that the daemon listens, and cuts the last tie to it.
pub(crate) fn report_listening(warning: Option<&str>) {
    // A session leader's child is never one, so this works; and if not, signals of the terminal
    // reach the daemon, no more.
    rustix::process::setsid().ok();
    report(&format!("{LISTENING}{}", warning.unwrap_or_default()));
}

/// Tells the starter why there is no daemon.
pub(crate) fn report_failure(message: &str) {
    report(message);
}

fn report(text: &str) {
    let mut out = std::io::stdout();
    drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        rustix::stdio::dup2_stdout(&null).ok();
    }
}
