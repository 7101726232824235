//! The port to one card's control daemon, and what passes through it.

use std::process::Command;
use std::time::Duration;

use crate::canary::Depth;
use crate::error::DaemonError;
use crate::limits::{DaemonLimits, Defaults};
use crate::pid::{Pid, ProcessId};
use crate::replies::ServerStatus;
use crate::site::DaemonSite;

mod process;

pub use process::ProcessDaemon;

/// A live daemon of ours that an earlier supervisor started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adopted {
    /// The daemon.
    pub process: ProcessId,
    /// The defaults that it has now.
    pub defaults: Defaults,
    /// The driver that it was started under, where it was told so.
    pub driver: Option<String>,
}

/// A server that a daemon runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Its process.
    pub pid: Pid,
    /// What the daemon says about it; `None` where the driver's daemon can't say (535).
    pub status: Option<ServerStatus>,
}

/// For how long to wait for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// For one front-end session to answer.
    pub answer: Duration,
    /// For another session to close, all retries together.
    pub turn: Duration,
    /// For a launched daemon to hold its lock.
    pub start: Duration,
    /// For a killed process to be gone, and for `terminate_client`.
    pub end: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            answer: Duration::from_secs(5),
            turn: Duration::from_secs(15),
            start: Duration::from_secs(10),
            end: Duration::from_secs(10),
        }
    }
}

/// One card's control daemon.
///
/// Every call looks at the world anew; nothing is remembered between calls, so that a supervisor
/// that starts over meets what is there. Calls block, at most for the [`Patience`] of the
/// implementation; calls for one pipe directory take turns, also between processes.
pub trait ControlDaemon: Send + Sync {
    /// The card and the directories.
    fn site(&self) -> &DaemonSite;

    /// The live process that holds the daemon's lock, ours or not. Never the pid file, which is
    /// often wrong (facts/mps.md 6.3). A holder in another pid namespace is an error.
    fn holder(&self) -> Result<Option<ProcessId>, DaemonError>;

    /// The live daemon, if there is one and it is ours: same card, same pipe directory. One that
    /// isn't is an error ([`crate::DaemonFault::Foreign`]). Its limits still have to be applied.
    fn adopt(&self) -> Result<Option<Adopted>, DaemonError>;

    /// Starts a daemon with `limits` applied and read back.
    ///
    /// Kills servers that a dead daemon left behind, and makes the pipe directory anew: a container
    /// that has the old one mounted can't reach a daemon whose limits aren't applied yet. When
    /// something fails after the launch, the new daemon is killed again.
    fn start(&self, limits: DaemonLimits) -> Result<ProcessId, DaemonError>;

    /// Sets the defaults of the live daemon and reads them back. They hold for servers that start
    /// later, see [`ControlDaemon::apply_to_server`].
    fn apply(&self, limits: DaemonLimits) -> Result<(), DaemonError>;

    /// The defaults that the live daemon has now.
    fn defaults(&self) -> Result<Defaults, DaemonError>;

    /// The servers of the live daemon; at most one under protocol 2.
    fn servers(&self) -> Result<Vec<Server>, DaemonError>;

    /// Has the daemon start a server for its own uid, before any client asks for one. It returns at
    /// once; whether the server came up shows in [`ControlDaemon::servers`].
    ///
    /// Under exclusive compute mode the card belongs to its first process. Without a server that
    /// is whoever comes, also a process that bypasses MPS.
    fn start_server(&self) -> Result<(), DaemonError>;

    /// Sets the limits of a running server for its future clients, and reads them back.
    fn apply_to_server(&self, server: Pid, limits: DaemonLimits) -> Result<(), DaemonError>;

    /// The clients of a server that isn't initializing.
    fn clients(&self, server: Pid) -> Result<Vec<Pid>, DaemonError>;

    /// Has a server end one client's work, so that the process can be killed without harm to the
    /// others (facts/mps.md 4.1). Returns when that is done.
    fn terminate_client(&self, server: Pid, client: Pid) -> Result<(), DaemonError>;

    /// A client of the live daemon, ready to be run, see [`Flight`](crate::Flight). `None` where
    /// there is no program for it.
    fn canary(&self, depth: Depth) -> Option<Command>;

    /// Ends a server at once, with all its clients' contexts; the next client gets a new one.
    fn kill_server(&self, server: Pid) -> Result<(), DaemonError>;

    /// Ends the live daemon. Waits up to `drain` for its clients to leave, then they lose their
    /// server. Succeeds once the lock is free and the process gone; none running is a success.
    fn quit(&self, drain: Duration) -> Result<(), DaemonError>;

    /// Kills the live daemon, if it is ours, and its servers. For one that doesn't answer.
    fn kill(&self) -> Result<(), DaemonError>;

    /// Kills servers of this pipe directory whose daemon is dead: they hold the card, and in
    /// exclusive mode keep every new server off it. Returns whom.
    fn remove_orphans(&self) -> Result<Vec<Pid>, DaemonError>;

    /// Servers of this pipe directory whose daemon is dead, left alone. They may have clients.
    fn orphans(&self) -> Result<Vec<Pid>, DaemonError>;

    /// Live daemons of this card and pipe directory that can't be reached any more, because the
    /// directory that they were started in has been removed. Their clients live on.
    fn lost(&self) -> Result<Vec<Pid>, DaemonError>;

    /// Kills the lost daemons and their servers, with all clients.
    fn kill_lost(&self) -> Result<(), DaemonError>;
}
