//! `cargo xtask bench node`: the product's three processes on the simulated node, release build;
//! and `cargo xtask bench supervisor`, `extender` and `webhook`.
//!
//! Where the peer was measured (NVIDIA's plugin 0.20 with its MPS daemon and config-manager,
//! facts/nvidia-device-plugin-measured.md), the ratio is given. Its figures were taken on another
//! machine, so a ratio of times is a rough one; of memory and of counts it isn't.

pub(crate) mod extender;
mod footprint;
mod process;
mod reload;
mod sample;
mod start;
pub(crate) mod supervisor;
pub(crate) mod webhook;

use anyhow::{Result, ensure};
use serde::Serialize;

use sample::Goal;

/// How much is measured.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Cold starts.
    #[arg(long, default_value_t = 100)]
    starts: usize,
    /// Label changes.
    #[arg(long, default_value_t = 100)]
    reloads: usize,
    /// Seconds over which idle CPU is measured.
    #[arg(long, default_value_t = 60)]
    idle_seconds: u64,
    /// Print one JSON document instead.
    #[arg(long)]
    json: bool,
}

/// Everything that was measured.
#[derive(Debug, Serialize)]
struct Report {
    cores: usize,
    goals: Vec<Goal>,
}

/// Measures and prints; an error when a goal was missed.
pub(crate) async fn run(args: Args) -> Result<()> {
    let mut goals = vec![start::measure(args.starts).await?];
    goals.extend(reload::measure(args.reloads).await?);
    goals.extend(footprint::measure(args.idle_seconds).await?);
    tell(goals, args.json)
}

/// Prints what was measured; an error when a goal was missed.
fn tell(goals: Vec<Goal>, json: bool) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let report = Report { cores, goals };
    if json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        for goal in &report.goals {
            println!("{goal}");
        }
    }
    let missed = report.goals.iter().filter(|goal| !goal.is_met()).count();
    ensure!(missed == 0, "{missed} of {} goals missed", report.goals.len());
    Ok(())
}
