//! `nvidia-smi` of the simulated node.

use std::process::ExitCode;

use clap::Parser;
use mpshare_sim_tools::smi::{self, Arguments};

fn main() -> ExitCode {
    smi::run(&Arguments::parse()).into()
}
