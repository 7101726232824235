//! The segments that an MPS server and its clients share, named files below `/dev/shm`.
//!
//! A server keeps one for its life; a client makes one while it connects, and looks for the
//! server's. Nothing is in them: what matters is that both see the same directory, as containers
//! without the right mount don't (facts/mps.md 3). A killed owner leaves its file behind, as with
//! the real ones, and the next owner in the directory removes it: the lock on it tells, in whichever
//! PID namespace the owner was.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, RenameFlags, flock};
use rustix::io::Errno;

/// The environment variable that stands in for a mount at `/dev/shm` where there are no mounts.
pub const SHM_ENV: &str = "MPSHARE_SIM_SHM";

const PREFIX: &str = "cuda.shm.";

/// How many processes of one PID, in different namespaces, can have a segment at once.
const MOST_OF_A_PID: u32 = 1000;

/// A segment of this process; dropping it removes the file.
#[derive(Debug)]
pub struct Segment {
    path: PathBuf,
    /// Locked for as long as the owner lives.
    _locked: File,
}

impl Segment {
    /// Makes the segment of this process.
    pub fn create() -> io::Result<Self> {
        Self::create_in(&dir())
    }

    fn create_in(dir: &Path) -> io::Result<Self> {
        remove_abandoned(dir);
        let uid = rustix::process::geteuid().as_raw();
        let owner = format!("{PREFIX}{uid}.{}", std::process::id());
        // Processes in different PID namespaces may have one PID, and share the directory.
        for number in 1..=MOST_OF_A_PID {
            let name = format!("{owner}.{number}");
            if let Some(segment) = Self::create_as(dir, &name)? {
                return Ok(segment);
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// `None` where another process has the name.
    fn create_as(dir: &Path, name: &str) -> io::Result<Option<Self>> {
        let (path, unlocked) = (dir.join(name), dir.join(format!(".{name}")));
        let file = File::create(&unlocked)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(None);
        }
        // Another process may have made it its own meanwhile.
        if !is_at(&file, &unlocked) {
            return Ok(None);
        }
        // Only a locked segment has its name: nobody takes a new one for abandoned.
        match rustix::fs::renameat_with(CWD, &unlocked, CWD, &path, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(Some(Self { path, _locked: file })),
            Err(Errno::EXIST) => fs::remove_file(&unlocked).map(|()| None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether this very file is at a path.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |metadata: Metadata| (metadata.dev(), metadata.ino());
    let found = fs::metadata(path).map(identity);
    file.metadata().map(identity).is_ok_and(|ours| found.is_ok_and(|found| found == ours))
}

/// Removes segments whose owners are gone; what can't be looked at stays.
fn remove_abandoned(dir: &Path) {
    for path in segments(dir) {
        let Ok(file) = File::open(&path) else { continue };
        let is_nobodys = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        // The name may be another one's since it was opened.
        if is_nobodys && is_at(&file, &path) {
            drop(fs::remove_file(&path));
        }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // Gone already is as good.
        drop(fs::remove_file(&self.path));
    }
}

/// Whether the segment of process `pid`, whoever's it is, can be seen from here.
pub fn is_visible(pid: i32) -> bool {
    is_visible_in(&dir(), pid)
}

fn is_visible_in(dir: &Path, pid: i32) -> bool {
    let is_of_pid = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str).and_then(|it| it.strip_prefix(PREFIX));
        name.is_some_and(|it| it.split('.').nth(1) == Some(&pid.to_string()))
    };
    segments(dir).iter().any(is_of_pid)
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let is_segment = |entry: &fs::DirEntry| {
        entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX))
    };
    entries.filter(is_segment).map(|entry| entry.path()).collect()
}

fn dir() -> PathBuf {
    std::env::var_os(SHM_ENV).map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn processes_of_one_pid_in_different_namespaces_have_segments_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let me = i32::try_from(std::process::id()).unwrap();
        let server = Segment::create_in(dir.path()).unwrap();
        // As many clients at once as come and go with its PID.
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let segment = Segment::create_in(dir.path()).unwrap();
                        assert_ne!(segment.path, server.path);
                        assert!(is_visible_in(dir.path(), me));
                    }
                });
            }
        });
        assert_eq!(segments(dir.path()), std::slice::from_ref(&server.path));
        drop(server);
        assert!(!is_visible_in(dir.path(), me));
    }
}
