//! The product's supervisor on the card: a share holds as a sum, daemons outlive a supervisor, limits
//! change under running clients, and what was found is restored.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use mpshare_api::status::{DaemonStatus, GpuState, GpuStatus};
use mpshare_nvml::{ComputeMode, GpuInventory as _};

use super::{Check, Verdict};
use crate::clients::Client;
use crate::protocol::Request;
use crate::rig::{Measured, PATIENCE, Rig, ms_since, same, until};
use crate::supervised::{Share, Supervised};

const GREEDY: &str = "9d1f5b1e-4c1a-4f6e-8a51-000000000001";
const NEIGHBOUR: &str = "9d1f5b1e-4c1a-4f6e-8a51-000000000002";

pub(super) fn checks() -> Vec<Check> {
    vec![
        Check {
            name: "supervisor.sum-is-enforced",
            limit: Duration::from_mins(2),
            guesses: &[
                "NVML tells the memory of each MPS client, and of nobody else in its list",
                "an eviction comes within 10 s of the grace period of 1 s",
            ],
            work: sum_is_enforced,
        },
        Check {
            name: "supervisor.killed-and-followed",
            limit: Duration::from_secs(150),
            guesses: &["a client outlives the supervisor of its daemon"],
            work: killed_and_followed,
        },
    ]
}

fn daemon_of(card: &GpuStatus) -> Result<DaemonStatus> {
    card.daemon.clone().context("the report names no daemon")
}

fn limit_of(daemon: &DaemonStatus) -> Result<u64> {
    Ok(daemon.limits.context("the report has no limits")?.memory_mib)
}

fn sum_is_enforced(rig: &Rig, measured: &Measured) -> Result<Verdict> {
    let policy = ["--over-share", "evict-process", "--over-share-grace", "1"];
    let mut node = Supervised::start(rig, 2, &policy)?;
    let daemon = daemon_of(&node.ready()?)?;
    let share = limit_of(&daemon)?;
    let unit = |unit, pod| Share { unit, mib: share, percent_tenths: 500, pod };
    node.hand_out(&[unit(0, GREEDY), unit(1, NEIGHBOUR)])?;
    let client = |pod| node.client_of(pod, &daemon.pipe_directory);
    let mut neighbour = match client(NEIGHBOUR) {
        Ok(client) => client,
        Err(error) if error.to_string().contains("no cgroup") => {
            return Ok(Verdict::Skipped(format!("{error:#}")));
        }
        Err(error) => return Err(error),
    };
    neighbour.ask(&Request::Take { mib: share / 2 })?;
    let mut older = client(GREEDY)?;
    older.ask(&Request::Take { mib: share * 6 / 10 })?;
    let mut newer = client(GREEDY)?;
    newer.ask(&Request::Take { mib: share * 6 / 10 })?;
    let over = Instant::now();
    measured.note("share_mib", share);
    let sum = rig.charged(older.pid())?.zip(rig.charged(newer.pid())?);
    measured.note("sum_mib", sum.map(|(one, other)| one + other));
    let told = node.card("told of an eviction", |card| finding(card).is_some())?;
    let told = finding(&told).unwrap_or_default();
    measured.note("told_ms", ms_since(over));
    let newest = format!("process {} ", newer.pid());
    ensure!(told.starts_with(&newest), "not the newest process was ended: {told}");
    until("the end of the newest process", PATIENCE, || Ok(newer.has_ended().then_some(())))?;
    let ended = ms_since(over);
    measured.note("ended_ms", ended);
    ensure!(ended < 11_000, "it took {ended} ms until the newest process had ended");
    older.ask(&Request::Work { launches: 1 }).context("the older process of the same pod")?;
    neighbour.ask(&Request::Work { launches: 1 }).context("the neighbour")?;
    Ok(Verdict::Passed)
}

fn finding(card: &GpuStatus) -> Option<String> {
    let evicted = card.findings.iter().find(|finding| finding.code == "ProcessEvicted");
    evicted.map(|finding| finding.message.clone())
}

fn killed_and_followed(rig: &Rig, measured: &Measured) -> Result<Verdict> {
    let start = Instant::now();
    let mut node = Supervised::start(rig, 4, &[])?;
    let before = daemon_of(&node.ready()?)?;
    measured.note("ready_ms", ms_since(start));
    let quarter = limit_of(&before)?;
    exclusive(rig, "while the card is shared")?;
    node.hand_out(&[Share { unit: 0, mib: quarter, percent_tenths: 250, pod: NEIGHBOUR }])?;
    let mut client = match node.client_of(NEIGHBOUR, &before.pipe_directory) {
        Ok(client) => client,
        Err(error) if error.to_string().contains("no cgroup") => {
            return Ok(Verdict::Skipped(format!("{error:#}")));
        }
        Err(error) => return Err(error),
    };
    node.kill()?;
    client.ask(&Request::Work { launches: 1 }).context("without a supervisor")?;
    let start = Instant::now();
    node.begin()?;
    let after = daemon_of(&node.ready()?)?;
    measured.note("adopted_ms", ms_since(start));
    same("the daemon", &(after.pid, after.server), &(before.pid, before.server))?;
    client.ask(&Request::Work { launches: 1 }).context("with a new supervisor")?;
    hot_change(&node, &before, &mut client, measured)?;
    client.end();
    node.hand_out(&[])?;
    whole_again(rig, &node, measured)?;
    Ok(Verdict::Passed)
}

/// From quarters to halves, while a quarter is in use.
fn hot_change(
    node: &Supervised<'_>,
    before: &DaemonStatus,
    client: &mut Client,
    measured: &Measured,
) -> Result<()> {
    let quarter = limit_of(before)?;
    let start = Instant::now();
    node.cut(2)?;
    let is_wider = |card: &GpuStatus| {
        let daemon = card.daemon.as_ref().and_then(|daemon| daemon.limits);
        card.state == GpuState::Ready && daemon.is_some_and(|it| it.memory_mib > quarter)
    };
    let changed = daemon_of(&node.card("ready with wider limits", is_wider)?)?;
    measured.note("hot_change_ms", ms_since(start));
    measured.note("limit_before_mib", quarter);
    measured.note("limit_after_mib", limit_of(&changed)?);
    same("the daemon", &(changed.pid, changed.server), &(before.pid, before.server))?;
    client.ask(&Request::Work { launches: 1 }).context("under new limits")?;
    let mut wider = node.client_of(NEIGHBOUR, &changed.pipe_directory)?;
    let block = Request::Take { mib: quarter + 64 };
    if let Err(refusal) = wider.attempt(&block)? {
        bail!("the new limits aren't there for a new client: {}", refusal.message);
    }
    Ok(())
}

/// The daemon quits, and the compute mode is what it was.
fn whole_again(rig: &Rig, node: &Supervised<'_>, measured: &Measured) -> Result<()> {
    let start = Instant::now();
    node.cut(1)?;
    let is_whole = |card: &GpuStatus| {
        card.state == GpuState::Ready && card.generation.starts_with("exclusive")
    };
    let card = node.card("handed out whole", is_whole)?;
    measured.note("whole_ms", ms_since(start));
    same("the daemon", &card.daemon, &None)?;
    same("the compute mode", &rig.nvml.compute_mode(&rig.gpu.uuid)?, &rig.mode)?;
    Ok(())
}

fn exclusive(rig: &Rig, when: &str) -> Result<()> {
    let mode = rig.nvml.compute_mode(&rig.gpu.uuid)?;
    let wanted = rig.mode.map(|_| ComputeMode::ExclusiveProcess);
    same(&format!("the compute mode {when}"), &mode, &wanted)
}
