//! `mpshare mps-canary`: a client of a card's MPS server, for a moment.
//!
//! It says in one line how that went, see [`Sign`], and its exit code says nothing. A process of its
//! own, because `cuInit` may wait for ever, and because entering a mount namespace takes one with a
//! single thread.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use mpshare_cuda::{Code, CudaError, Driver};
use mpshare_mps::Sign;
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::host_exec;

/// What it allocates, in bytes: the least that the driver gives.
const LITTLE: usize = 2 << 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How far it goes.
    #[arg(long, value_enum, default_value_t = HowFar::Allocate)]
    depth: HowFar,
    /// The mount namespace to enter; without it this process's own.
    #[arg(long)]
    mount_namespace: Option<PathBuf>,
    /// The directory that it has at `/dev/shm`; without it the namespace's own.
    #[arg(long)]
    shm: Option<PathBuf>,
    /// The driver library; without it `libcuda.so.1` as the loader finds it.
    #[arg(long)]
    cuda_library: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum HowFar {
    Connect,
    Allocate,
}

/// Flies, and says how it went.
pub(crate) fn run(args: &Args) -> ExitCode {
    let sign = fly(args);
    // Nobody is left to be told when this can't be written.
    drop(writeln!(io::stdout(), "{sign}"));
    ExitCode::SUCCESS
}

fn fly(args: &Args) -> Sign {
    if let Err(error) = prepare(args) {
        return Sign::Unable(format!("{error:#}"));
    }
    match serve(args) {
        Ok(()) => Sign::Served,
        Err(CudaError::Refused { call, code }) => match code {
            // It was served as anybody would be: the card or its server is full.
            Code::OUT_OF_MEMORY | Code::MAX_CLIENTS | Code::MAX_CONNECTIONS => Sign::Served,
            Code(code) => Sign::Refused { call: call.to_owned(), code },
        },
        Err(error) => Sign::Unable(sentence(&error)),
    }
}

/// Who is to be told is gone when the supervisor is, and then a process that waits would wait for
/// ever.
fn prepare(args: &Args) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if let Some(namespace) = &args.mount_namespace {
        host_exec::enter(namespace)?;
    }
    if let Some(shm) = &args.shm {
        host_exec::give_shared_memory(shm)?;
    }
    Ok(())
}

fn serve(args: &Args) -> Result<(), CudaError> {
    let driver = Driver::open(&args.cuda_library)?;
    driver.init()?;
    let device = driver.device(0)?;
    if args.depth == HowFar::Allocate {
        let context = driver.context(device)?;
        let memory = context.allocate(LITTLE)?;
        drop(memory);
    }
    Ok(())
}

fn sentence(error: &CudaError) -> String {
    let cause = std::error::Error::source(error);
    cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}
