//! Ending a server so that another one can take its place.

use std::time::{Duration, Instant};

use mpshare_core::GpuPlan;
use mpshare_mps::ProcessHandle;
use tracing::warn;

use super::{Card, CardError};

/// For so long a server that was told to end may take.
const SERVER_END: Duration = Duration::from_secs(2);

impl Card {
    /// Ends a server that doesn't come to itself; by its process where the daemon can't.
    pub(super) fn end_server(&mut self, plan: &GpuPlan) -> Result<(), CardError> {
        let Some((server, why)) = self.hopeless() else { return Ok(()) };
        let gpu = &self.gpu.uuid;
        warn!(%gpu, %server, why, "replacing the MPS server");
        self.overheard.ending(server.pid);
        if let Some(daemon) = self.planned_daemon(plan)?
            && let Err(error) = daemon.kill_server(server.pid)
        {
            warn!(%gpu, %server, %error, "the MPS daemon can't end its server");
        }
        let handle = ProcessHandle::open_exact(&self.ports.host_proc, server);
        if let Ok(Some(handle)) = handle
            && !handle.wait(Instant::now() + SERVER_END).unwrap_or(false)
            && let Err(error) = handle.kill()
        {
            warn!(%gpu, %server, %error, "the MPS server can't be killed");
        }
        self.servers.ask_next();
        Ok(())
    }
}
