//! Who holds a control daemon's lock.
//!
//! The daemon holds a record lock on `control_lock` for as long as it lives. The pid file is no
//! evidence: 535 writes none, and later ones don't cut off what an earlier file said
//! (facts/mps.md 1.1, 6.3).

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::process::{Flock, FlockType, fcntl_getlk};

use crate::pid::Pid;

/// Who holds a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder {
    /// Nobody.
    Nobody,
    /// This process.
    Process(Pid),
    /// A process of a pid namespace that isn't ours or below ours.
    OtherPidNamespace,
}

/// Asks who holds the lock of the file at `path`. A file that isn't there is held by nobody.
pub(crate) fn holder(path: &Path) -> io::Result<Holder> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Holder::Nobody),
        Err(error) => return Err(error),
    };
    let question = Flock::from(FlockType::WriteLock);
    Ok(match fcntl_getlk(&file, &question)? {
        None => Holder::Nobody,
        Some(lock) => lock
            .pid
            .and_then(|pid| Pid::new(pid.as_raw_nonzero().get()))
            .map_or(Holder::OtherPidNamespace, Holder::Process),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_missing_or_just_lies_there_is_held_by_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control_lock");
        assert_eq!(holder(&path).unwrap(), Holder::Nobody);
        std::fs::write(&path, "").unwrap();
        assert_eq!(holder(&path).unwrap(), Holder::Nobody);
    }
}
