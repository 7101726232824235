//! `terminate_client` ends one client's work and harms no other (facts/mps.md 4.1).

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use mpshare_mps::ControlDaemon as _;

use super::{Check, Verdict};
use crate::protocol::Request;
use crate::rig::{Measured, PATIENCE, Rig, limits, ms_since, same, until};

/// `CUDA_ERROR_MPS_CLIENT_TERMINATED`.
const TERMINATED: i32 = 810;

pub(super) fn checks() -> Vec<Check> {
    vec![Check {
        name: "drain.terminate-client",
        limit: Duration::from_secs(90),
        guesses: &["a client with a quarter of a second of work in flight is ended within 10 s"],
        work: terminate_client,
    }]
}

fn terminate_client(rig: &Rig, measured: &Measured) -> Result<Verdict> {
    let daemon = rig.serving(limits(rig.modest(), 1000)?)?;
    let server = daemon.server()?;
    let mut victim = daemon.open_client(&[])?;
    let mut neighbour = daemon.open_client(&[])?;
    victim.ask(&Request::Take { mib: 64 })?;
    neighbour.ask(&Request::Work { launches: 1 })?;
    until("both are listed", PATIENCE, || {
        let clients = daemon.clients(server)?;
        let both = [victim.pid(), neighbour.pid()];
        Ok(both.iter().all(|pid| clients.contains(pid)).then_some(()))
    })?;
    // In flight when it is ended: that is how pods end.
    victim.tell(&Request::Work { launches: 20 })?;
    neighbour.tell(&Request::Work { launches: 8 })?;
    std::thread::sleep(Duration::from_millis(500));
    let start = Instant::now();
    daemon.terminate_client(server, victim.pid())?;
    measured.note("reply_ms", ms_since(start));
    let Err(refusal) = victim.hear(PATIENCE)? else {
        bail!("the victim's work was done all the same");
    };
    measured.note("victim_hears_ms", ms_since(start));
    measured.note("code", refusal.code);
    same("what the victim hears", &refusal.code, &TERMINATED)?;
    let sticky = victim.attempt(&Request::Take { mib: 64 })?.err().map(|refusal| refusal.code);
    same("what the victim hears from then on", &sticky, &Some(TERMINATED))?;
    if let Err(refusal) = neighbour.hear(PATIENCE)? {
        bail!("the neighbour was harmed: {}", refusal.message);
    }
    neighbour.ask(&Request::Take { mib: 64 })?;
    ensure!(!daemon.clients(server)?.contains(&victim.pid()), "the victim is still listed");
    let charged = rig.charged(victim.pid())?;
    measured.note("nvml_of_victim_mib", charged);
    drop(victim);
    neighbour.ask(&Request::Work { launches: 1 })?;
    daemon.open_client(&[])?.ask(&Request::Work { launches: 1 })?;
    Ok(Verdict::Passed)
}
