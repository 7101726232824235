//! Whether an MPS control daemon lives, asked of the one file that can't lie: the daemon holds a
//! lock on `control_lock` for as long as it exists (facts/mps.md 1.1). Its socket and its pid
//! file outlive it.

use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Flock, FlockType, fcntl_getlk};

/// What the lock says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DaemonLife {
    /// Somebody holds the lock.
    Alive,
    /// Nobody does, or there is no such file.
    Dead,
    /// The file can't be looked at from here; the supervisor's report has to do.
    Unknown,
}

/// Looks at the lock in a pipe directory.
pub(crate) fn daemon_life(pipe_directory: &Path) -> DaemonLife {
    // What isn't a file mustn't hold up an answer to the kubelet.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(pipe_directory.join("control_lock"), flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return DaemonLife::Dead,
        Err(_) => return DaemonLife::Unknown,
    };
    let whole_file = Flock::from(FlockType::WriteLock);
    match fcntl_getlk(&file, &whole_file) {
        Ok(Some(_)) => DaemonLife::Alive,
        Ok(None) => DaemonLife::Dead,
        Err(_) => DaemonLife::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_lock_file_that_nobody_holds_is_a_dead_daemon() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(daemon_life(dir.path()), DaemonLife::Dead, "no file");
        fs::write(dir.path().join("control_lock"), "").unwrap();
        assert_eq!(daemon_life(dir.path()), DaemonLife::Dead, "no lock");
    }

    #[test]
    fn what_cannot_be_opened_is_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(daemon_life(&file), DaemonLife::Unknown);
    }
}
