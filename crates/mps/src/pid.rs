//! Process ids of the host, and the identity that survives their reuse.

use std::fmt;

/// A process id, above zero.
///
/// The daemon prints 0 for a client outside its own pid namespace (facts/mps.md 3); that is no
/// `Pid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(i32);

impl Pid {
    /// The first process of the PID namespace, which has the host's own root directory.
    pub(crate) const HOST_INIT: Self = Self(1);

    /// A process id; `None` for 0 and below.
    pub const fn new(pid: i32) -> Option<Self> {
        if pid > 0 { Some(Self(pid)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> i32 {
        self.0
    }

    pub(crate) fn rustix(self) -> Option<rustix::process::Pid> {
        rustix::process::Pid::from_raw(self.0)
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One process for its whole life: its id alone may name another one later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId {
    /// Its id.
    pub pid: Pid,
    /// When it started, in clock ticks since boot (field 22 of `/proc/PID/stat`).
    pub start: u64,
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pid.fmt(f)
    }
}
