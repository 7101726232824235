//! A process identity that survives PID reuse: the PID with its start time.

use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};

/// A PID together with the kernel's start time of that process (field 22 of `/proc/PID/stat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcId {
    /// The PID in the PID namespace of whoever recorded it.
    pub pid: i32,
    /// Clock ticks since boot.
    pub start: u64,
}

impl ProcId {
    /// Looks up a live process; `None` when there is none (a zombie counts as dead).
    pub fn of(pid: i32) -> Option<Self> {
        let line = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The command name may hold blanks and parentheses: fields start after the last one.
        let (_, rest) = line.rsplit_once(')')?;
        let mut fields = rest.split_whitespace();
        if matches!(fields.next()?, "Z" | "X") {
            return None;
        }
        let start = fields.nth(18)?.parse().ok()?;
        Some(Self { pid, start })
    }

    /// The calling process.
    pub fn current() -> Self {
        let pid = i32::try_from(std::process::id()).unwrap_or(i32::MAX);
        Self::of(pid).unwrap_or(Self { pid, start: 0 })
    }

    /// Whether this very process still runs.
    pub fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }
}

/// The inode of this process's PID namespace.
pub fn own_namespace() -> Option<u64> {
    let file = std::fs::metadata("/proc/self/ns/pid").ok()?;
    Some(file.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_is_alive_and_a_reused_pid_is_not_it() {
        let me = ProcId::current();
        assert!(me.is_alive());
        let other = ProcId { start: me.start + 1, ..me };
        assert!(!other.is_alive());
    }
}
