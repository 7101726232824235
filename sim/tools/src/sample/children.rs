//! The same program as another process: several times at once, or without the variables of MPS.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode};

use rustix::process::{Signal, set_parent_process_death_signal};

/// Does the work in `count` processes, and fails if one of them does.
pub(super) fn run(count: u32, command_line: &[OsString]) -> ExitCode {
    let start = |_| again(command_line).args(["--processes", "1", "--with-parent"]).spawn();
    // All are started before the first is waited for.
    let children: Vec<io::Result<Child>> = (0..count).map(start).collect();
    let mut code = ExitCode::SUCCESS;
    for child in children {
        match child.and_then(|mut child| child.wait()) {
            Ok(status) if status.success() => {}
            Ok(_) => code = ExitCode::FAILURE,
            Err(error) => {
                complain(&error);
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

/// Asks the kernel to end this process together with the one that started it.
pub(super) fn end_with_parent() {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::TERM)) {
        complain(&error.into());
    }
}

/// Whether there is a variable that leads to MPS or limits it.
pub(super) fn has_mps_variables() -> bool {
    env::vars_os().any(|(name, _)| is_of_mps(&name))
}

/// Becomes the same program without those variables.
pub(super) fn run_without_mps_variables(command_line: &[OsString]) -> ExitCode {
    let mut command = again(command_line);
    for (name, _) in env::vars_os().filter(|(name, _)| is_of_mps(name)) {
        command.env_remove(name);
    }
    complain(&command.exec());
    ExitCode::FAILURE
}

fn is_of_mps(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with("CUDA_MPS_"))
}

/// This program under its present name.
fn again(command_line: &[OsString]) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(command_line);
    if let Some(name) = env::args_os().next() {
        command.arg0(name);
    }
    command
}

fn complain(error: &io::Error) {
    // Nobody is left to tell if standard error is closed.
    drop(writeln!(io::stderr(), "cuda-sample: {error}"));
}
