//! A client's fault hits all clients of its card, no other card, and heals once they have left
//! (facts/mps.md 4.1).

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use mpshare_mps::{ControlDaemon as _, ServerStatus};

use super::{Check, Verdict};
use crate::clients::Client;
use crate::protocol::Request;
use crate::rig::{Daemon, Measured, PATIENCE, Rig, limits, ms_since, until};

pub(super) fn checks() -> Vec<Check> {
    vec![Check {
        name: "faults.shared-and-healed",
        limit: Duration::from_mins(2),
        guesses: &[
            "a store to address 0 is an error of the whole context, which every client of the card gets",
            "the server stays in FAULT while an affected client lives",
            "the card serves again within 60 s of the last one's exit",
        ],
        work: shared_and_healed,
    }]
}

fn shared_and_healed(rig: &Rig, measured: &Measured) -> Result<Verdict> {
    let daemon = rig.serving(limits(rig.modest(), 1000)?)?;
    let elsewhere = elsewhere(rig)?;
    let mut guilty = daemon.open_client(&[])?;
    let mut neighbour = daemon.open_client(&[])?;
    neighbour.ask(&Request::Work { launches: 1 })?;
    let start = Instant::now();
    let Err(refusal) = guilty.attempt(&Request::Fault)? else {
        bail!("a write to nowhere was no fault");
    };
    measured.note("guilty_code", refusal.code);
    measured.note("guilty_ms", ms_since(start));
    let code = until("an error of the neighbour", PATIENCE, || {
        Ok(neighbour.attempt(&Request::Work { launches: 1 })?.err())
    })?;
    measured.note("neighbour_code", code.code);
    measured.note("neighbour_ms", ms_since(start));
    if rig.profile.has_server_status() {
        until("the server's status is FAULT", PATIENCE, || {
            Ok((status(&daemon)? == Some(ServerStatus::Fault)).then_some(()))
        })?;
        measured.note("fault_status_ms", ms_since(start));
    }
    let newcomer = daemon.client(&[])?.attempt(&Request::Open)?;
    measured.note("newcomer_code", newcomer.as_ref().err().map(|refusal| refusal.code));
    ensure!(newcomer.is_err(), "a newcomer was let in while affected clients live");
    if let Some((_daemon, mut client)) = elsewhere {
        client.ask(&Request::Work { launches: 1 }).context("a client of the other card")?;
        measured.note("other_card", "untouched");
    } else {
        measured.note("other_card", "none");
    }
    guilty.end();
    neighbour.end();
    healed(rig, &daemon, measured)?;
    Ok(Verdict::Passed)
}

/// A client of another card, with a daemon of its own, where there is another card.
fn elsewhere(rig: &Rig) -> Result<Option<(Daemon, Client)>> {
    let Some(second) = &rig.second else {
        return Ok(None);
    };
    let daemon = rig.serving_on(second, limits(1024, 1000)?)?;
    let mut client = daemon.open_client(&[])?;
    client.ask(&Request::Work { launches: 1 })?;
    Ok(Some((daemon, client)))
}

fn status(daemon: &Daemon) -> Result<Option<ServerStatus>> {
    Ok(daemon.servers()?.into_iter().next().and_then(|server| server.status))
}

fn healed(rig: &Rig, daemon: &Daemon, measured: &Measured) -> Result<()> {
    let end = Instant::now();
    if rig.profile.has_server_status() {
        until("the server's status is ACTIVE", Duration::from_mins(1), || {
            Ok((status(daemon)? == Some(ServerStatus::Active)).then_some(()))
        })?;
        measured.note("active_again_ms", ms_since(end));
    }
    let mut next = until("a new client is let in", Duration::from_mins(1), || {
        let mut client = daemon.client(&[])?;
        let opened = client.attempt(&Request::Open)?;
        Ok(opened.is_ok().then_some(client))
    })?;
    measured.note("serves_again_ms", ms_since(end));
    next.ask(&Request::Work { launches: 1 })?;
    Ok(())
}
