//! Processes that wait in `cuInit` because the card's MPS server is another user's.
//!
//! Before `-multiuser-server` a daemon serves one user at a time and tells nobody: a client of
//! another one hangs without a word (facts/mps.md 3). Only the daemon's log knows that it came.

use mpshare_api::status::ClientStatus;
use mpshare_core::{GpuUuid, Reason};
use mpshare_mps::log::{self, NewClient};
use mpshare_mps::{ControlDaemon, Pid, Proc};

/// The latest process that waits for `server` to go, if there is one.
pub(crate) fn reason(
    gpu: &GpuUuid,
    daemon: &dyn ControlDaemon,
    proc: &Proc,
    (server, clients): (Pid, &[ClientStatus]),
) -> Option<Reason> {
    // Without clients the server goes, and whoever waits is next.
    clients.first()?;
    let served = proc.uid(server).ok().flatten()?;
    let log = log::tail(&daemon.site().control_log()).ok()?;
    let waits = |client: &NewClient| {
        client.uid != served
            && !clients.iter().any(|served| served.pid == client.pid.get())
            // Its number may be another process's by now, but hardly one of that user.
            && proc.uid(client.pid).is_ok_and(|uid| uid == Some(client.uid))
    };
    let waiting = log::pending_clients(&log).filter(waits).last()?;
    let (pid, uid) = (waiting.pid.get(), waiting.uid);
    Some(Reason::UserWaits { gpu: gpu.clone(), pid, uid, served })
}
