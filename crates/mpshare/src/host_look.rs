//! `mpshare host-look`: what a daemon would find on the host, seen from inside a container.
//!
//! A process of its own, because entering a mount namespace takes one with a single thread. It
//! tells the names of programs that aren't there, one a line; what keeps it from looking is said
//! plainly, since the supervisor passes it on.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Result, ensure};
use mpshare_mps::{Obstacle, missing_program};

use crate::host_exec;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The mount namespace to enter.
    #[arg(long, default_value = "/proc/1/ns/mnt")]
    mount_namespace: PathBuf,
    /// A program, and the directories to look for it in: `NAME=DIRECTORY:...`.
    #[arg(long)]
    search: Vec<Search>,
}

#[derive(Debug, Clone)]
struct Search {
    program: String,
    directories: Vec<PathBuf>,
}

impl FromStr for Search {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (program, directories) =
            text.split_once('=').ok_or_else(|| format!("`{text}` has no `=`"))?;
        Ok(Self {
            program: program.to_owned(),
            directories: std::env::split_paths(directories).collect(),
        })
    }
}

/// Looks. Exit codes: 0 it could be looked, 1 it couldn't.
pub(crate) fn run(args: &Args) -> ExitCode {
    match look(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to be done when even this can't be written.
            drop(writeln!(io::stderr(), "{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn look(args: &Args) -> Result<()> {
    host_exec::enter(&args.mount_namespace)?;
    ensure!(Path::new("/dev/shm").is_dir(), "the host has no directory `/dev/shm`");
    let mut out = io::stdout().lock();
    for Search { program, directories } in &args.search {
        if let Some(Obstacle::NoProgram { program, .. }) =
            missing_program([(program, directories.clone())])
        {
            writeln!(out, "{program}")?;
        }
    }
    Ok(())
}
