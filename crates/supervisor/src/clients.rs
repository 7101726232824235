//! The servers and clients of a card's daemon.
//!
//! Clients come from NVML, which costs next to nothing. The daemon is asked about its servers only
//! while there are clients, and seldom otherwise, because each question is a process.

use std::time::{Duration, Instant};

use mpshare_api::status::ClientStatus;
use mpshare_core::{GpuUuid, Memory, Reason};
use mpshare_mps::{ControlDaemon, Pid, Server, ServerStatus};
use tracing::debug;

use crate::options::Ports;

/// How often servers are asked after while there are clients.
const BUSY_EVERY: Duration = Duration::from_secs(2);

/// How often servers are asked after while there is none.
const IDLE_EVERY: Duration = Duration::from_mins(1);

/// From here on a server that is still starting counts as stuck.
const START_DEADLINE: Duration = Duration::from_mins(1);

/// The MPS clients of a card; none when the driver doesn't tell.
pub(crate) fn of_card(ports: &Ports, gpu: &GpuUuid) -> Vec<ClientStatus> {
    let processes = ports.inventory.mps_processes(gpu).unwrap_or_else(|error| {
        debug!(%gpu, %error, "MPS clients can't be listed");
        Vec::new()
    });
    let mut clients: Vec<ClientStatus> = processes
        .into_iter()
        .map(|process| ClientStatus {
            pid: process.pid,
            memory_mib: process.memory.map(Memory::mib),
            pod_uid: pod_of(ports, process.pid),
        })
        .collect();
    clients.sort_by_key(|client| client.pid);
    clients
}

fn pod_of(ports: &Ports, pid: i32) -> Option<String> {
    let container = ports.proc.container(Pid::new(pid)?).ok()??;
    Some(container.pod.to_string())
}

/// What is known of a daemon's server.
#[derive(Debug, Default)]
pub(crate) struct ServerView {
    asked: Option<Instant>,
    server: Option<i32>,
    starting_since: Option<Instant>,
    trouble: Option<Reason>,
}

impl ServerView {
    /// PID of the server.
    pub(crate) const fn pid(&self) -> Option<i32> {
        self.server
    }

    /// Asks after servers if it is time to; returns what is wrong with one.
    pub(crate) fn look(
        &mut self,
        daemon: &dyn ControlDaemon,
        clients: &[ClientStatus],
        now: Instant,
    ) -> Option<Reason> {
        let is_unsettled = self.trouble.is_some() || self.starting_since.is_some();
        let every = if clients.is_empty() && !is_unsettled {
            IDLE_EVERY
        } else {
            BUSY_EVERY
        };
        let is_due = self
            .asked
            .is_none_or(|asked| now.duration_since(asked) >= every)
            || (self.server.is_none() && !clients.is_empty());
        if is_due {
            match daemon.servers() {
                Ok(servers) => {
                    let first = servers.first();
                    self.server = first.map(|server| server.pid.get());
                    self.trouble = self.judge(&daemon.site().gpu, first, now);
                    self.asked = Some(now);
                }
                // Busy or ending: neither healthy nor dead; ask again next time.
                Err(error) => debug!(%error, "servers can't be listed"),
            }
        }
        self.trouble.clone()
    }

    fn judge(&mut self, gpu: &GpuUuid, server: Option<&Server>, now: Instant) -> Option<Reason> {
        let gpu = gpu.clone();
        let since = self.starting_since.take();
        let Server { pid, status } = server?;
        let server = pid.get();
        match status {
            Some(ServerStatus::Fault) => Some(Reason::ServerFault { gpu, server }),
            Some(ServerStatus::Initializing) => {
                let since = *self.starting_since.insert(since.unwrap_or(now));
                let waited = now.duration_since(since);
                let seconds = waited.as_secs();
                (waited >= START_DEADLINE).then_some(Reason::ServerStuck {
                    gpu,
                    server,
                    seconds,
                })
            }
            // What the daemon doesn't say, or says in a word of a later driver, is no trouble.
            Some(ServerStatus::Active | ServerStatus::Other(_)) | None => None,
        }
    }
}
