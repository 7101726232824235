//! `kubectl mpshare`: what people do with the shared GPUs of a cluster.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::cluster::{ClusterError, ClusterOptions};
use crate::completion::{self, Shell};
use crate::drain::{self, Drain, DrainError, Undrain};
use crate::objects;

/// The program's name; kubectl finds the plugin by it.
const PROGRAM: &str = "kubectl-mpshare";

/// Exit codes, as the help has them.
const NO_SUCH_NODE: u8 = 3;
const TIMED_OUT: u8 = 4;
const INTERRUPTED: u8 = 130;

/// Take GPUs that are shared under MPS out of service, and into it again
///
/// Exit codes: 0 done, 1 it can't be done, 2 wrong usage, 3 no node of this name, 4 not done within
/// `--timeout`, 130 interrupted.
#[derive(Debug, Parser)]
#[command(name = PROGRAM, bin_name = "kubectl mpshare", version, arg_required_else_help = true)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    cluster: ClusterOptions,
    /// Print a completion script
    #[arg(long, value_enum, value_name = "SHELL")]
    completion: Option<Shell>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Drain(Drain),
    Undrain(Undrain),
}

/// Runs the program; exit codes as in its help.
pub fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let program = words.next().unwrap_or_default();
    if completion::is_asked_by_kubectl(&program) {
        return complete(words);
    }
    let args = Args::parse();
    let done = match (&args.completion, &args.command) {
        (Some(shell), _) => {
            let script = completion::script::<Args>(*shell, PROGRAM);
            io::stdout().write_all(&script).map_err(DrainError::from)
        }
        (None, Some(command)) => perform(command, &args.cluster),
        (None, None) => Ok(()),
    };
    done.map_or_else(|error| failure(&error), |()| ExitCode::SUCCESS)
}

fn perform(command: &Command, cluster: &ClusterOptions) -> Result<(), DrainError> {
    runtime()?.block_on(async {
        let cluster = cluster.connect().await?;
        match command {
            Command::Drain(args) => drain::drain(&cluster, args).await,
            Command::Undrain(args) => drain::undrain(&cluster, args).await,
        }
    })
}

fn runtime() -> Result<tokio::runtime::Runtime, DrainError> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

fn failure(error: &DrainError) -> ExitCode {
    if let DrainError::Io(io) = error
        && io.kind() == io::ErrorKind::BrokenPipe
    {
        // The reader of a pipe has seen enough.
        return ExitCode::SUCCESS;
    }
    // When even that can't be written, nothing is left to be done.
    drop(writeln!(io::stderr(), "error: {error}"));
    match error {
        DrainError::Cluster(ClusterError::NoSuchNode(_)) => ExitCode::from(NO_SUCH_NODE),
        DrainError::TimedOut { .. } => ExitCode::from(TIMED_OUT),
        DrainError::Interrupted(_) => ExitCode::from(INTERRUPTED),
        _ => ExitCode::FAILURE,
    }
}

/// Answers kubectl: subcommands first, then nodes; a cluster that can't be asked has none.
fn complete(words: impl Iterator<Item = OsString>) -> ExitCode {
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let command = Args::command();
    let within = words.first().and_then(|word| command.find_subcommand(word));
    let text = if let Some(within) = within.filter(|_| words.len() > 1) {
        completion::candidates(within, &words, &nodes())
    } else {
        let names = command.get_subcommands().map(|it| it.get_name().to_owned());
        completion::candidates(&command, &words, &names.collect::<Vec<_>>())
    };
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn nodes() -> Vec<String> {
    let ask = async {
        let cluster = ClusterOptions::default().connect().await.ok()?;
        objects::nodes(&cluster.client).await.ok()
    };
    let found = runtime().ok().and_then(|runtime| runtime.block_on(ask));
    found.unwrap_or_default().into_iter().map(|node| node.metadata.name).collect()
}
