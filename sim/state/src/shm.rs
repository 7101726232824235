//! The segments that an MPS server and its clients share, named files below `/dev/shm`.
//!
//! A server keeps one for its life; a client makes one while it connects, and looks for the
//! server's. Nothing is in them: what matters is that both see the same directory, as containers
//! without the right mount don't (facts/mps.md 3). A killed owner leaves its file behind, as with
//! the real ones.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

/// The environment variable that stands in for a mount at `/dev/shm` where there are no mounts.
pub const SHM_ENV: &str = "MPSHARE_SIM_SHM";

/// A segment of this process; dropping it removes the file.
#[derive(Debug)]
pub struct Segment {
    path: PathBuf,
}

impl Segment {
    /// Makes the segment of this process.
    pub fn create() -> io::Result<Self> {
        let uid = rustix::process::geteuid().as_raw();
        let path = dir().join(format!("cuda.shm.{uid}.{}.1", std::process::id()));
        File::create(&path)?;
        Ok(Self { path })
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
    let Ok(entries) = fs::read_dir(dir()) else {
        return false;
    };
    entries.flatten().any(|entry| {
        let name = entry.file_name();
        name.to_str()
            .is_some_and(|name| name.starts_with("cuda.shm.") && name.ends_with(&suffix))
    })
}

fn dir() -> PathBuf {
    std::env::var_os(SHM_ENV).map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from)
}
