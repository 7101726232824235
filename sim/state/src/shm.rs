//! The segments that an MPS server and its clients share, named files below `/dev/shm`.
//!
//! A server keeps one for its life; a client makes one while it connects, and looks for the
//! server's. Nothing is in them: what matters is that both see the same directory, as containers
//! without the right mount don't (facts/mps.md 3). A killed owner leaves its file behind, as with
//! the real ones, and the next owner in the directory removes it: the lock on it tells, in whichever
//! PID namespace the owner was.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// The environment variable that stands in for a mount at `/dev/shm` where there are no mounts.
pub const SHM_ENV: &str = "MPSHARE_SIM_SHM";

const PREFIX: &str = "cuda.shm.";

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
        let dir = dir();
        remove_abandoned(&dir);
        let uid = rustix::process::geteuid().as_raw();
        let name = format!("{PREFIX}{uid}.{}.1", std::process::id());
        let (path, unlocked) = (dir.join(&name), dir.join(format!(".{name}")));
        let file = File::create(&unlocked)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        // Only a locked segment has its name: nobody takes a new one for abandoned.
        fs::rename(&unlocked, &path)?;
        Ok(Self { path, _locked: file })
    }
}

/// Removes segments whose owners are gone; what can't be looked at stays.
fn remove_abandoned(dir: &Path) {
    for path in segments(dir) {
        let lock = |file: File| flock(file, FlockOperation::NonBlockingLockExclusive);
        if File::open(&path).is_ok_and(|file| lock(file).is_ok()) {
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
    let suffix = format!(".{pid}.1");
    let of_pid = |path: &PathBuf| path.to_str().is_some_and(|path| path.ends_with(&suffix));
    segments(&dir()).iter().any(of_pid)
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
