//! The container runtime that containerd calls instead of `runc`.

use std::process::ExitCode;

fn main() -> ExitCode {
    mpshare_sim_runtime::run(std::env::args_os())
}
