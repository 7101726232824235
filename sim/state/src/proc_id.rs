//! A process identity that survives PID reuse: the PID with its start time.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

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
        Self::in_proc(Path::new("/proc"), pid)
    }

    fn in_proc(proc: &Path, pid: i32) -> Option<Self> {
        let line = std::fs::read_to_string(proc.join(format!("{pid}/stat"))).ok()?;
        // The command name may hold blanks and parentheses: fields start after the last one.
        let (_, rest) = line.rsplit_once(')')?;
        let mut fields = rest.split_whitespace();
        if matches!(fields.next()?, "Z" | "X") {
            return None;
        }
        let start = fields.nth(18)?.parse().ok()?;
        Some(Self { pid, start })
    }

    /// The calling process as the driver sees it: under its PID on the host.
    pub fn current() -> Self {
        let own = i32::try_from(std::process::id()).unwrap_or(i32::MAX);
        let pid = on_host(Path::new(HOST_PROC)).unwrap_or(own);
        Self::of(own).map_or(Self { pid, start: 0 }, |me| Self { pid, ..me })
    }

    /// Whether this very process of the host still runs. In a container that can't see the host's
    /// processes, the answer is of the container's own; see [`sees_host`].
    pub fn is_alive(self) -> bool {
        let host = Path::new(HOST_PROC);
        let proc = if host.join("self").exists() { host } else { Path::new("/proc") };
        Self::in_proc(proc, self.pid) == Some(self)
    }
}

/// Where a container has the host's `/proc`, which its runtime puts there with the driver. It stands
/// for what the kernel module knows: a process's PID on the host, and who is gone.
pub const HOST_PROC: &str = "/run/mpshare-sim-host-proc";

/// Whether processes of the PID namespace `host` can be told dead from alive here.
pub(crate) fn sees_host(host: Option<u64>) -> bool {
    host.is_none() || host == own_namespace() || on_host(Path::new(HOST_PROC)).is_some()
}

/// The PID of the calling process in the namespace that `proc` is of: what `self` points to depends
/// on who looks, and its number on which `/proc` it is.
fn on_host(proc: &Path) -> Option<i32> {
    std::fs::read_link(proc.join("self")).ok()?.to_str()?.parse().ok()
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

    #[test]
    fn the_pid_is_that_of_the_proc_that_is_asked() {
        assert_eq!(on_host(Path::new("/proc")), Some(std::process::id().cast_signed()));
        assert_eq!(on_host(Path::new("/nowhere")), None);
    }
}
