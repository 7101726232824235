//! The fake `nvidia-cuda-mps-control` and `nvidia-cuda-mps-server`.
//!
//! Written from the observed behaviour of the real programs: argv, environment, standard input and
//! output, exit codes, files, signals and logs are theirs; what goes over the sockets is the
//! simulator's own (`mpshare_sim_state::mps`). Nothing of NVIDIA's is in here, and nothing under
//! `crates/` may depend on it.

pub mod cli;
pub mod control;
mod daemon;
mod daemonize;
mod files;
mod frontend;
mod log;
mod profile;
pub mod server;
mod signals;
