//! A memory limit holds, whatever a client says, and what the driver counts for a client at its
//! limit (facts/mps.md 2).

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mpshare_core::Memory;
use mpshare_mps::{ControlDaemon as _, log};

use super::{Check, Verdict};
use crate::clients::Client;
use crate::protocol::Request;
use crate::report::EVICTION_MARGIN;
use crate::rig::{Daemon, Measured, PATIENCE, Rig, limits, number, same, until};

/// The most that CUDA itself may take of a client's limit: 250 to 500 MiB were seen elsewhere
/// (facts/mps.md 2).
const OVERHEAD: u64 = 700;

const LIMIT: &str = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";

pub(super) fn checks() -> Vec<Check> {
    let limit = Duration::from_secs(90);
    vec![
        Check {
            name: "limits.memory-holds",
            limit,
            guesses: &[
                "CUDA takes at most 700 MiB of a client's limit",
                "NVML charges a client at its limit no more than that limit",
            ],
            work: memory_holds,
        },
        Check {
            name: "limits.environment-only-lowers",
            limit,
            guesses: &["a limit in the environment by index holds for the first card that is seen"],
            work: environment_only_lowers,
        },
        Check { name: "limits.environment-trap", limit, guesses: &[], work: environment_trap },
        Check {
            name: "limits.exact-in-server-log",
            limit,
            guesses: &["every server writes its limit into server.log in bytes"],
            work: exact_in_server_log,
        },
        Check {
            name: "limits.running-server",
            limit,
            guesses: &["set_device_pinned_mem_limit takes effect for the very next client"],
            work: running_server,
        },
    ]
}

/// How much a client can allocate, up to `at_most`.
fn allocatable(client: &mut Client, at_most: u64) -> Result<u64> {
    number(&client.ask(&Request::TakeAll { steps: vec![64, 2], at_most })?, "mib")
}

fn of_new_client(daemon: &Daemon, variables: &[(&str, &str)], at_most: u64) -> Result<u64> {
    allocatable(&mut daemon.open_client(variables)?, at_most)
}

/// Fails unless that much could be allocated under a limit.
fn within(what: &str, taken: u64, limit: u64) -> Result<()> {
    ensure!(taken <= limit, "{what}: {taken} MiB could be allocated under a limit of {limit} MiB");
    let least = limit.saturating_sub(OVERHEAD);
    ensure!(taken >= least, "{what}: only {taken} MiB of a limit of {limit} MiB");
    Ok(())
}

fn memory_holds(rig: &Rig, measured: &Measured) -> Result<Verdict> {
    let limit = rig.modest();
    let daemon = rig.serving(limits(limit, 1000)?)?;
    let mut client = daemon.client(&[])?;
    let seen = client.ask(&Request::Open)?;
    measured.note("limit_mib", limit);
    measured.note("free_seen_mib", number(&seen, "free_mib")?);
    measured.note("total_seen_mib", number(&seen, "total_mib")?);
    let uuid = seen.get("uuid").and_then(|uuid| uuid.as_str()).unwrap_or_default();
    same("the card that the client sees", &uuid, &rig.gpu.uuid.as_str())?;
    let idle = rig.charged(client.pid())?;
    let taken = allocatable(&mut client, limit + 2 * OVERHEAD)?;
    measured.note("allocatable_mib", taken);
    measured.note("overhead_mib", limit.saturating_sub(taken));
    measured.note("nvml_idle_mib", idle);
    let charged = rig.charged(client.pid())?;
    measured.note("nvml_at_limit_mib", charged);
    within("a client", taken, limit)?;
    let charged = charged.context(
        "NVML doesn't tell the memory of the client; in a container it can't, unless the host's \
         process ids are seen there",
    )?;
    let margin = i128::from(limit) - i128::from(charged);
    measured.note(EVICTION_MARGIN, i64::try_from(margin)?);
    ensure!(
        charged <= limit,
        "NVML charges a client at its limit of {limit} MiB with {charged} MiB: \
         `--over-share evict-process` would end clients that keep their limit"
    );
    Ok(Verdict::Passed)
}

fn environment_only_lowers(rig: &Rig, measured: &Measured) -> Result<Verdict> {
    let limit = rig.modest();
    let daemon = rig.serving(limits(limit, 1000)?)?;
    let (half, double) = (limit / 2, limit * 2);
    let lower = of_new_client(&daemon, &[(LIMIT, &format!("0={half}M"))], double)?;
    measured.note("under_half_mib", lower);
    let higher = of_new_client(&daemon, &[(LIMIT, &format!("0={double}M"))], double)?;
    measured.note("under_double_mib", higher);
    measured.note("limit_mib", limit);
    within("a lower limit in the environment", lower, half)?;
    within("a higher limit in the environment", higher, limit)?;
    Ok(Verdict::Passed)
}

/// Nothing is asserted: the product sums what NVML says because of this, whatever the driver does.
fn environment_trap(rig: &Rig, measured: &Measured) -> Result<Verdict> {
    let limit = rig.modest();
    let daemon = rig.serving(limits(limit, 1000)?)?;
    let variable = format!("0={}M,1=4096M", limit / 2);
    let taken = of_new_client(&daemon, &[(LIMIT, &variable)], limit + 1024)?;
    measured.note("limit_mib", limit);
    measured.note("allocatable_mib", taken);
    measured.note("drops_the_limit", taken > limit);
    Ok(Verdict::Passed)
}

fn exact_in_server_log(rig: &Rig, measured: &Measured) -> Result<Verdict> {
    // What the daemon shows as `7G`, or as `1G` on a small card.
    let mib = if rig.gpu.memory.mib() > 8000 { 7650 } else { 1234 };
    let daemon = rig.serving(limits(mib, 335)?)?;
    let server = daemon.server()?;
    let _client = daemon.open_client(&[])?;
    let logged = until("a memory limit in server.log", PATIENCE, || {
        let logged = log::server_limits(&log::tail(&daemon.site().server_log())?, server);
        Ok(logged.memory_bytes.map(|_| logged))
    })?;
    measured.note("logged_bytes", logged.memory_bytes);
    measured.note("logged_percent", logged.percent.map(|percent| percent.to_string()));
    same("the limit in server.log", &logged.memory_bytes, &Some(Memory::from_mib(mib).bytes()))?;
    let percent = limits(mib, 335)?.percent;
    same("the percentage in server.log", &logged.percent, &Some(percent))?;
    Ok(Verdict::Passed)
}

fn running_server(rig: &Rig, measured: &Measured) -> Result<Verdict> {
    let (after, before) = (rig.modest(), rig.modest() / 2);
    let daemon = rig.serving(limits(before, 1000)?)?;
    let server = daemon.server()?;
    let mut first = daemon.open_client(&[])?;
    daemon.apply(limits(after, 1000)?)?;
    let unaware = of_new_client(&daemon, &[], after)?;
    measured.note("after_new_default_mib", unaware);
    daemon.apply_to_server(server, limits(after, 1000)?)?;
    let later = of_new_client(&daemon, &[], after)?;
    measured.note("after_new_server_limit_mib", later);
    let earlier = allocatable(&mut first, after)?;
    measured.note("of_earlier_client_mib", earlier);
    same("the server", &daemon.server()?, &server)?;
    within("a client after a new default", unaware, before)?;
    within("a client after a new limit of the server", later, after)?;
    within("a client from before that", earlier, before)?;
    Ok(Verdict::Passed)
}
