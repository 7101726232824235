//! `cuda-sample`: a small CUDA program with the habits of a real one.
//!
//! It allocates, computes for a while, holds what it has, and notices at once when its context is
//! lost. It loads `libcuda.so.1` by name, so it runs against whichever driver is installed. [`driver`]
//! is the edge to the library, [`work`] what the process does, [`children`] how it does it in several
//! processes, [`report`] what it says about it.

#![expect(
    clippy::struct_excessive_bools,
    reason = "the switches of a command line are independent of each other"
)]

mod amount;
mod children;
mod driver;
mod report;
mod stop;
mod work;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

pub use amount::{Amount, Hold};

/// What the program is to do, in this order.
#[derive(Debug, Clone, Parser)]
#[command(name = "cuda-sample", about = "A small CUDA program")]
pub struct Arguments {
    /// Allocates this much; may be given several times.
    #[arg(long, value_name = "AMOUNT")]
    alloc: Vec<Amount>,
    /// Allocates in steps of this much until there is no more, and says how much it was.
    #[arg(long, value_name = "STEP")]
    until_oom: Option<Amount>,
    /// Launches a kernel that keeps a whole card busy for this long, and waits for it.
    #[arg(long, value_name = "MILLISECONDS")]
    launch_ms: Option<u64>,
    /// Writes a file of this name below `/dev/shm`.
    #[arg(long, value_name = "NAME")]
    touch_shm: Option<String>,
    /// Makes a fatal GPU fault.
    #[arg(long)]
    fault: bool,
    /// Holds everything for so long (`30s`, `500ms` or `forever`).
    #[arg(long, value_name = "TIME")]
    hold: Option<Hold>,
    /// The visible card to use.
    #[arg(long, default_value_t = 0)]
    device: i32,
    /// Does the same in this many processes.
    #[arg(long, default_value_t = 1, overrides_with = "processes")]
    processes: u32,
    /// Ends with the process that started this one.
    #[arg(long, hide = true)]
    with_parent: bool,
    /// Stays in spite of an error, as a program does that hangs.
    #[arg(long)]
    linger: bool,
    /// Passes over SIGTERM, as many programs do.
    #[arg(long)]
    ignore_sigterm: bool,
    /// Drops the `CUDA_MPS_*` variables first, as a program does that wants to escape.
    #[arg(long)]
    no_mps_env: bool,
    /// Appends what happened to this file, as lines of JSON.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// Runs the program.
pub fn run(arguments: &Arguments, command_line: &[OsString]) -> ExitCode {
    stop::on_signals(arguments);
    if arguments.with_parent {
        children::end_with_parent();
    }
    if arguments.no_mps_env && children::has_mps_variables() {
        return children::run_without_mps_variables(command_line);
    }
    if arguments.processes > 1 {
        return children::run(arguments.processes, command_line);
    }
    work::run(arguments)
}
