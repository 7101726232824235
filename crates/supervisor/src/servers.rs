//! The MPS server of a card's daemon: whether one is there, and what is wrong with it.
//!
//! Each question to the daemon is a process, so it is asked only when the server that was last
//! seen is gone, every few seconds while there are clients, and seldom otherwise.

use std::time::{Duration, Instant};

use mpshare_core::{GpuUuid, Reason};
use mpshare_mps::{ControlDaemon, DaemonError, Pid, Proc, ProcessId, Server, ServerStatus};

use crate::steps::ServerSeen;

/// How often a server with clients is asked after.
const BUSY_EVERY: Duration = Duration::from_secs(2);

/// How often an idle one is.
const IDLE_EVERY: Duration = Duration::from_mins(1);

/// Whether anybody would notice a fault of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// It has no clients.
    Idle,
    /// It has.
    Busy,
}

/// What was last seen of a daemon's server.
#[derive(Debug, Default)]
pub(crate) struct ServerView {
    server: Option<ProcessId>,
    status: Option<ServerStatus>,
    asked: Option<Instant>,
    starting_since: Option<Instant>,
}

impl ServerView {
    /// The server.
    pub(crate) const fn server(&self) -> Option<ProcessId> {
        self.server
    }

    /// PID of the server.
    pub(crate) fn pid(&self) -> Option<Pid> {
        self.server.map(|server| server.pid)
    }

    /// Whether the server that was last seen lives.
    pub(crate) fn is_alive(&self, proc: &Proc) -> bool {
        let is_same =
            |server: ProcessId| proc.identify(server.pid).is_ok_and(|found| found == Some(server));
        self.server.is_some_and(is_same)
    }

    /// The server, while it is in FAULT.
    pub(crate) fn faulted(&self) -> Option<ProcessId> {
        self.server.filter(|_| self.status == Some(ServerStatus::Fault))
    }

    /// Whether it says that it takes clients, or can't say.
    pub(crate) fn is_serving(&self) -> bool {
        self.server.is_some() && matches!(self.status, None | Some(ServerStatus::Active))
    }

    /// Has the next look ask the daemon, whenever it was asked last.
    pub(crate) const fn ask_next(&mut self) {
        self.asked = None;
    }

    /// Looks again if it is time to.
    pub(crate) fn refresh(
        &mut self,
        daemon: &dyn ControlDaemon,
        proc: &Proc,
        load: Load,
        now: Instant,
    ) -> Result<ServerSeen, DaemonError> {
        if self.is_due(proc, load, now) {
            let servers = daemon.servers()?;
            self.asked = Some(now);
            self.take(servers.first(), proc, now);
        }
        Ok(self.seen())
    }

    fn is_due(&self, proc: &Proc, load: Load, now: Instant) -> bool {
        let every = match load {
            Load::Busy => BUSY_EVERY,
            Load::Idle => IDLE_EVERY,
        };
        let is_settled = matches!(self.status, None | Some(ServerStatus::Active));
        !self.is_alive(proc)
            || !is_settled
            || self.asked.is_none_or(|asked| now.duration_since(asked) >= every)
    }

    fn take(&mut self, server: Option<&Server>, proc: &Proc, now: Instant) {
        self.server = server.and_then(|server| proc.identify(server.pid).ok().flatten());
        self.status = server.and_then(|server| server.status.clone());
        match self.status {
            Some(ServerStatus::Initializing) => {
                self.starting_since.get_or_insert(now);
            }
            None | Some(ServerStatus::Active | ServerStatus::Fault | ServerStatus::Other(_)) => {
                self.starting_since = None;
            }
        }
    }

    fn seen(&self) -> ServerSeen {
        match (&self.server, &self.status) {
            (None, _) => ServerSeen::Absent,
            (Some(_), Some(ServerStatus::Initializing)) => ServerSeen::Starting,
            (Some(_), _) => ServerSeen::Running,
        }
    }

    /// For how long the server has been starting.
    pub(crate) fn starting_for(&self, now: Instant) -> Duration {
        self.starting_since.map_or(Duration::ZERO, |since| now.duration_since(since))
    }

    /// Whether it has been starting for longer than `deadline`.
    pub(crate) fn is_stuck(&self, deadline: Duration, now: Instant) -> bool {
        self.starting_since.is_some_and(|since| now.duration_since(since) >= deadline)
    }

    /// What is wrong with the server; `deadline` is how long its start may take.
    pub(crate) fn trouble(
        &self,
        gpu: &GpuUuid,
        deadline: Duration,
        now: Instant,
    ) -> Option<Reason> {
        let gpu = gpu.clone();
        let server = self.pid()?.get();
        if self.status == Some(ServerStatus::Fault) {
            return Some(Reason::ServerFault { gpu, server });
        }
        let seconds = now.duration_since(self.starting_since?).as_secs();
        self.is_stuck(deadline, now).then_some(Reason::ServerStuck { gpu, server, seconds })
    }
}
