//! The control program's entry: picks daemon or front-end.

use std::io::Write;
use std::process::ExitCode;

use crate::cli::{self, Foreground, Role, USAGE, Users};
use crate::daemon::{Daemon, Options};
use crate::files::{self, Dirs};
use crate::profile::Profile;
use crate::{daemonize, frontend, signals};

/// Runs the control program with this process's arguments.
pub fn run() -> ExitCode {
    signals::restore_defaults();
    let profile = Profile::current();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match cli::role(profile, &arguments) {
        Role::FrontEnd => frontend::run(&Dirs::from_env().control()),
        Role::Daemon(Foreground::Yes, users) => foreground(profile, users),
        Role::Daemon(Foreground::No, users) if daemonize::is_background() => {
            background(profile, users)
        }
        Role::Daemon(Foreground::No, _) => daemonize::start(&arguments),
        Role::Help => print(USAGE, ExitCode::SUCCESS),
        Role::Usage => print(USAGE, ExitCode::FAILURE),
        Role::Version => {
            let version = profile.binary_version().unwrap_or_default();
            print(&format!("CUDA MPS Control binary version: {version}\n"), ExitCode::SUCCESS)
        }
    }
}

fn print(text: &str, code: ExitCode) -> ExitCode {
    // Nobody reads: nothing to tell.
    drop(std::io::stdout().write_all(text.as_bytes()));
    code
}

fn foreground(profile: Profile, users: Users) -> ExitCode {
    let dirs = Dirs::from_env();
    match files::open(&dirs, profile, Foreground::Yes) {
        Ok(open) => Daemon::new(Options { profile, users, dirs }, open).serve(),
        Err(error) => {
            daemonize::complain(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

fn background(profile: Profile, users: Users) -> ExitCode {
    let dirs = Dirs::from_env();
    match files::open(&dirs, profile, Foreground::No) {
        Ok(open) => {
            let daemon = Daemon::new(Options { profile, users, dirs }, open);
            daemonize::report_listening(daemon.warning());
            daemon.serve()
        }
        Err(error) => {
            daemonize::report_failure(&error.to_string());
            ExitCode::FAILURE
        }
    }
}
