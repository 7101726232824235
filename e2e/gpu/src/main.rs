//! What the product relies on, tried on a machine with a real card: `cargo xtask gpu`.
//!
//! One program in four parts, each a process. `run` (`keeper.rs`) is what a person starts: it keeps
//! the time, puts everything back, and writes the report. `work` (`worker.rs`) tries one check after
//! the other. `client` (`client.rs`) is a small CUDA program that does what a check tells it.
//! `restore` ends what is left and restores the compute mode. So a check that hangs in the driver,
//! a Ctrl-C and a crash leave the machine as it was.
//!
//! The parts meet the card through the product's own crates. Nothing in here knows a simulator but
//! `simulated.rs`, which lays one out and names it in the environment, as a driver is named by it.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command for people")]

mod cgroups;
mod checks;
mod client;
mod clients;
mod frontend;
mod itself;
mod keeper;
mod machine;
mod marked;
mod protocol;
mod report;
mod restore;
mod rig;
mod simulated;
mod supervised;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "mpshare-gpu-suite", about = "Tries what mpshare relies on, on a real GPU")]
struct Arguments {
    #[command(subcommand)]
    part: Part,
}

#[derive(Subcommand)]
enum Part {
    /// Try the checks: all, or those whose names contain a word.
    Run(keeper::Options),
    /// The part of `run` that uses the card.
    #[command(hide = true)]
    Work(worker::Options),
    /// A CUDA program that is told on its stdin what to do.
    #[command(hide = true)]
    Client,
    /// End what an interrupted run left, and restore the compute mode.
    #[command(hide = true)]
    Restore {
        /// The directory of the run.
        #[arg(long)]
        root: PathBuf,
        /// Remove the directory too.
        #[arg(long)]
        remove: bool,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().part {
        Part::Run(options) => keeper::run(&options),
        Part::Work(options) => worker::run(&options).map(|()| ExitCode::SUCCESS),
        Part::Client => client::run().map(|()| ExitCode::SUCCESS),
        Part::Restore { root, remove } => {
            let files = if remove { restore::Files::Remove } else { restore::Files::Keep };
            restore::run(&root, files).map(|()| ExitCode::SUCCESS)
        }
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
