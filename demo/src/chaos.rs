//! `cargo xtask chaos`: a campaign of faults on a simulated node, see
//! [`mpshare_testkit::campaign`].

use std::time::Duration;

use anyhow::Result;
use mpshare_testkit::campaign::{self, Plan, Report, Resting};

/// Which campaign.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Decides what is done; by chance where it isn't given.
    #[arg(long)]
    seed: Option<u64>,
    /// How long it goes on.
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// The round to begin with: the one that failed.
    #[arg(long, default_value_t = 0)]
    round: usize,
}

/// Runs and tells; an error when something was seen that must never be.
pub(crate) async fn run(args: &Args) -> Result<()> {
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(0..1_000_000));
    eprintln!("chaos: seed {seed}, {} minutes", args.minutes);
    let time = Duration::from_secs(60 * args.minutes);
    let report = campaign::run(Plan { seed, first_round: args.round, time }).await?;
    tell(seed, args.minutes, &report);
    Ok(())
}

fn tell(seed: u64, minutes: u64, report: &Report) {
    let faults: usize = report.faults.values().sum();
    println!("seed {seed}, {minutes} minutes, {} rounds", report.rounds);
    println!(
        "{faults} faults and {} other actions, {} clients, 0 violations",
        report.other_actions, report.clients
    );
    for (kind, count) in &report.faults {
        println!("{count:>7} {kind}");
    }
    println!("refusals by sentence:");
    for (sentence, count) in &report.refused {
        println!("{count:>7} {sentence}");
    }
    if let Some((first, last)) = &report.rest {
        println!("at rest after the first round: {}", at_rest(first));
        println!("at rest after the last round:  {}", at_rest(last));
    }
}

fn at_rest(resting: &Resting) -> String {
    let mut parts: Vec<String> = resting
        .roles
        .iter()
        .map(|(role, usage)| {
            let (descriptors, threads, kib) =
                (usage.descriptors, usage.threads, usage.resident_kib);
            format!("{role} {descriptors} descriptors, {threads} threads, {kib} KiB")
        })
        .collect();
    parts.push(format!("{} files", resting.files));
    parts.join("; ")
}
