//! `mpshare node`: what a person or a job does to one node.

mod cleanup;
mod preflight;

use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Take mpshare off this node after its pods are gone: end MPS daemons without clients,
    /// restore compute modes, remove files
    ///
    /// Cards with living clients stay as they are. Exit codes: 0 nothing of mpshare is left,
    /// 1 something failed, or mpshare still runs here, 2 wrong usage, 3 clients live on: run it
    /// again when they have ended.
    Cleanup(cleanup::Args),
    /// Say what this node lacks for sharing its cards under MPS, whatever its config is
    ///
    /// Takes the options of `mps-control-daemon` and changes nothing. Exit codes: 0 nothing is
    /// missing, 1 something is.
    Preflight(preflight::Args),
}

/// Runs the command; exit codes as in its help.
pub(crate) fn run(args: &Args) -> ExitCode {
    match &args.command {
        Command::Cleanup(args) => cleanup::run(args),
        Command::Preflight(args) => preflight::run(args),
    }
}
