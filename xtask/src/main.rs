//! The tasks of this repository: `cargo xtask <task>`.
//!
//! | task | what |
//! |---|---|
//! | `demo` | the simulated node, end to end, for people |
//! | `chaos` | hundreds of faults on the simulated node, and whether it holds |
//! | `test` | tidy, format, lints, all tests |
//! | `tidy` | the rules of ARCHITECTURE.md that a compiler doesn't check |
//! | `e2e` | the product on a real Kubernetes with simulated GPUs (root) |
//! | `gpu` | what the product relies on, on a real GPU (root); with `--simulator` on none |
//! | `bench node` | start-up, reload, memory and idle CPU of the node's processes |
//! | `bench supervisor` | CPU and memory of the supervisor of a full node |
//! | `bench extender` | what kube-scheduler's calls cost; with `--cluster` on a real one (root) |
//! | `bench webhook` | what the API server's admission reviews cost |
//! | `fuzz` | any bytes into what reads the bytes of others |

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command for people")]

mod build;
mod demo;
mod e2e;
mod fuzz;
mod gpu;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "xtask", about = "Tasks of the mpshare repository")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build everything and run the simulated node's story.
    Demo {
        /// `--keep` leaves the node up until Ctrl-C, with a kubeconfig for `kubectl`; `--json` prints
        /// one JSON document instead of the story.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Break the simulated node in all ways for some time, and check that it holds.
    Chaos {
        /// `--seed N` decides what is done, `--minutes M` how long it goes on; `--round N` begins with
        /// the round of that seed that failed.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Check formatting, lints, the architecture, and run all tests.
    Test,
    /// Check the architecture only.
    Tidy,
    /// Run scenarios on a real Kubernetes with simulated GPUs: all, or those whose names contain a
    /// word. Needs root, Go and some Debian packages, which it names.
    E2e {
        /// `--keep` leaves the cluster up until Ctrl-C; words choose scenarios.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Try what the product relies on, on a machine with a GPU and without Kubernetes; needs root.
    /// Where there is none it says so.
    Gpu {
        /// `--simulator` tries the simulated driver; `--report FILE` writes a JSON document;
        /// `--gpu UUID` chooses the card; words choose checks.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Measure against goals (release build): the processes of a node, the supervisor of a full one,
    /// the scheduler extender, or the admission webhook.
    Bench {
        /// What to measure: `node`, `supervisor`, `extender` or `webhook`.
        what: String,
        /// `node`: `--starts N`, `--reloads N`, `--idle-seconds N`, `--json`.
        /// `supervisor`: `--seconds N`, `--json`.
        /// `extender`: `--calls N`, `--binds N`, `--pods N`, `--json`.
        /// `extender --cluster` (root; a real etcd, API server and kube-scheduler): `--nodes N`,
        /// `--pods N`, `--rounds N`, `--programs DIR`, `--json`.
        /// `webhook`: `--rate N`, `--seconds N`, `--nodes N`, `--handshakes N`, `--json`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Try any bytes on what reads the bytes of others: admission reviews, annotations, limits,
    /// configs. Needs a C++ compiler.
    Fuzz(fuzz::Options),
}

fn main() -> ExitCode {
    let result = match Args::parse().task {
        Task::Demo { args } => demo::demo(&args),
        Task::Chaos { args } => demo::chaos(&args),
        Task::Test => test::run(),
        Task::Tidy => tidy::run(),
        Task::E2e { args } => e2e::run(&args),
        Task::Gpu { args } => gpu::run(&args),
        Task::Bench { what, args } => demo::bench(&what, &args),
        Task::Fuzz(options) => fuzz::run(&options),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
