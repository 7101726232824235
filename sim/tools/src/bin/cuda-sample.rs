//! A small CUDA program.

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use mpshare_sim_tools::sample::{self, Arguments};

fn main() -> ExitCode {
    let command_line: Vec<OsString> = env::args_os().skip(1).collect();
    sample::run(&Arguments::parse(), &command_line)
}
