//! What the daemon knows: all of it is in memory, and gone with the process.

use std::collections::VecDeque;
use std::sync::Arc;

use super::defaults::Defaults;
use super::link::Link;
use super::pending::Pending;

/// The daemon's state.
#[derive(Debug)]
pub(super) struct State {
    pub(super) defaults: Defaults,
    /// At most one: a server of another user starts when the present one is gone.
    pub(super) server: Option<Server>,
    /// Clients that wait for a server, first come first served.
    pub(super) pending: VecDeque<Pending>,
    /// Users for whom `start_server` waits.
    pub(super) wanted: VecDeque<u32>,
    pub(super) ui: UiSlot,
    pub(super) life: Life,
    /// What the daemon's own exit status tells.
    pub(super) starts: Starts,
}

impl State {
    pub(super) fn new(defaults: Defaults) -> Self {
        Self {
            defaults,
            server: None,
            pending: VecDeque::new(),
            wanted: VecDeque::new(),
            ui: UiSlot::Free,
            life: Life::Serving,
            starts: Starts::Fine,
        }
    }

    /// The server with that PID.
    pub(super) fn server(&self, pid: i32) -> Option<&Server> {
        self.server.as_ref().filter(|server| server.pid == pid)
    }
}

/// A server that this daemon started.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) pid: i32,
    pub(super) uid: u32,
    pub(super) cause: Cause,
    pub(super) stage: Stage,
    pub(super) stay: Stay,
}

impl Server {
    /// The connection to a server that is up.
    pub(super) fn link(&self) -> Option<Arc<Link>> {
        match &self.stage {
            Stage::Up(link) => Some(Arc::clone(link)),
            Stage::Initializing => None,
        }
    }
}

/// Why a server was started: it decides how often a failed start is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    Client,
    Command,
}

/// How far a server is.
#[derive(Debug)]
pub(super) enum Stage {
    Initializing,
    Up(Arc<Link>),
}

/// Whether a server takes more clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stay {
    ForEver,
    UntilLastClient,
}

/// The one front-end session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UiSlot {
    Free,
    Taken,
}

/// Where the daemon is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    Serving,
    /// `quit` waits for the servers.
    Quitting,
    /// The process ends with this status.
    Over(u8),
}

/// Whether every server came up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Starts {
    Fine,
    OneFailed,
}
