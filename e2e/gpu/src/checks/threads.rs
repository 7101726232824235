//! A thread percentage leaves a client so many multiprocessors (facts/mps.md 2).

use std::time::Duration;

use anyhow::{Result, ensure};
use mpshare_mps::ControlDaemon as _;

use super::{Check, Verdict};
use crate::protocol::Request;
use crate::rig::{Daemon, Measured, Rig, limits, number};

const PERCENTAGE: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";

pub(super) fn checks() -> Vec<Check> {
    vec![Check {
        name: "threads.multiprocessors",
        limit: Duration::from_secs(90),
        guesses: &["a percentage is rounded down, by at most an eighth of the card or 8 \
                    multiprocessors"],
        work: multiprocessors,
    }]
}

fn seen(daemon: &Daemon, variables: &[(&str, &str)]) -> Result<u64> {
    number(&daemon.client(variables)?.ask(&Request::Open)?, "multiprocessors")
}

fn multiprocessors(rig: &Rig, measured: &Measured) -> Result<Verdict> {
    let daemon = rig.serving(limits(rig.modest(), 1000)?)?;
    let server = daemon.server()?;
    let all = seen(&daemon, &[])?;
    measured.note("at_100", all);
    for (percent, name) in [(50, "at_50"), (25, "at_25")] {
        daemon.apply_to_server(server, limits(rig.modest(), percent * 10)?)?;
        let part = seen(&daemon, &[])?;
        measured.note(name, part);
        is_about(part, all, percent.into())?;
    }
    // The server is at 25 % now.
    let lower = seen(&daemon, &[(PERCENTAGE, "12.5")])?;
    let higher = seen(&daemon, &[(PERCENTAGE, "75")])?;
    measured.note("environment_12_5_of_25", lower);
    measured.note("environment_75_of_25", higher);
    is_about(higher, all, 25)?;
    ensure!(lower <= higher, "12.5 % in the environment gave {lower}, 25 % give {higher}");
    Ok(Verdict::Passed)
}

fn is_about(part: u64, all: u64, percent: u64) -> Result<()> {
    let exact = all * percent / 100;
    let least = exact.saturating_sub((all / 8).max(8)).max(1);
    ensure!(
        (least..=exact + 2).contains(&part),
        "{percent} % of {all} multiprocessors: {part}, not about {exact}"
    );
    Ok(())
}
