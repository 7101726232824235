//! The simulated node for people: `story` tells what mpshare does, `chaos` tries to break
//! it, `bench` measures it.
//!
//! Everything that runs is the real product on a simulated driver, kubelet and API server; see
//! `mpshare_testkit::simnode`. `cargo xtask demo` and `cargo xtask bench node` build and start it.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

mod bench;
mod chaos;
mod manifests;
mod screen;
mod story;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "mpshare-demo", about = "mpshare on a simulated node")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Tell the story of one node.
    Story(story::Args),
    /// Break a node in all ways and see that it holds.
    Chaos(chaos::Args),
    /// Measure start-up, reload, memory and idle CPU.
    Bench(bench::Args),
    /// Measure what a full node costs its supervisor.
    BenchSupervisor(bench::supervisor::Args),
    /// Measure what kube-scheduler's calls cost.
    BenchExtender(bench::extender::Args),
    /// Measure what the API server's reviews cost.
    BenchWebhook(bench::webhook::Args),
}

/// Exit code 0 only if every step was seen.
fn main() -> ExitCode {
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: can't start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(async {
        match Args::parse().task {
            Task::Story(args) => story::run(args).await,
            Task::Chaos(args) => chaos::run(&args).await,
            Task::Bench(args) => bench::run(args).await,
            Task::BenchSupervisor(args) => bench::supervisor::run(args).await,
            Task::BenchExtender(args) => bench::extender::run(args).await,
            Task::BenchWebhook(args) => bench::webhook::run(args).await,
        }
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
