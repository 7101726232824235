//! Where one card's control daemon lives.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use mpshare_core::GpuUuid;
use thiserror::Error;

/// A pipe directory that a control daemon can really use: absolute, not the root, at most
/// [`PipeDirectory::LONGEST`] bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PipeDirectory(PathBuf);

/// Why a path is no pipe directory.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SiteError {
    /// Its sockets wouldn't fit an address; the daemon would end without a word.
    #[error(
        "pipe directory `{}` has {length} bytes; the control daemon takes at most {longest}",
        .path.display(), longest = PipeDirectory::LONGEST
    )]
    TooLong {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
    },
    /// The daemon changes its working directory.
    #[error("pipe directory `{}` is not an absolute path of a directory with a parent", .0.display())]
    NotAbsolute(PathBuf),
}

impl PipeDirectory {
    /// `$DIR/control_privileged` must fit into a socket address of 107 bytes
    /// (facts/mps.md 1.1).
    pub const LONGEST: usize = 87;

    /// Checks a path.
    pub fn new(path: impl Into<PathBuf>) -> Result<Self, SiteError> {
        let path = path.into();
        let length = path.as_os_str().as_bytes().len();
        if length > Self::LONGEST {
            return Err(SiteError::TooLong { path, length });
        }
        if !path.is_absolute() || path.file_name().is_none() {
            return Err(SiteError::NotAbsolute(path));
        }
        Ok(Self(path))
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The file whose lock the live daemon holds.
    pub fn lock_file(&self) -> PathBuf {
        self.0.join("control_lock")
    }

    /// The file with which our own processes take turns. It lies beside the pipe directory: that
    /// one is made anew at each start, and tenants see what is in it.
    pub fn turn_file(&self) -> PathBuf {
        let mut name = OsString::from(self.0.as_os_str());
        name.push(".turn");
        PathBuf::from(name)
    }
}

impl fmt::Display for PipeDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

/// The card and the directories of one control daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonSite {
    /// The only card that it serves.
    pub gpu: GpuUuid,
    /// `CUDA_MPS_PIPE_DIRECTORY`.
    pub pipe: PipeDirectory,
    /// `CUDA_MPS_LOG_DIRECTORY`.
    pub log: PathBuf,
    /// What the daemon's server sees as `/dev/shm`, where the launcher can arrange that.
    pub shm: PathBuf,
}

impl DaemonSite {
    /// The daemon's own log.
    pub fn control_log(&self) -> PathBuf {
        self.log.join("control.log")
    }

    /// The log of its servers.
    pub fn server_log(&self) -> PathBuf {
        self.log.join("server.log")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_directory_of_87_bytes_is_the_longest() {
        let of_length = |length: usize| PipeDirectory::new(format!("/{}", "p".repeat(length - 1)));
        assert!(of_length(87).is_ok());
        assert!(matches!(of_length(88), Err(SiteError::TooLong { length: 88, .. })));
    }

    #[test]
    fn a_pipe_directory_is_absolute_and_has_a_parent() {
        for path in ["", "pipe", "./pipe", "/", "/a/.."] {
            assert_eq!(PipeDirectory::new(path), Err(SiteError::NotAbsolute(path.into())));
        }
    }

    #[test]
    fn the_turn_file_lies_outside_of_the_pipe_directory() {
        let pipe = PipeDirectory::new("/run/x/pipe").unwrap();
        assert_eq!(pipe.turn_file(), Path::new("/run/x/pipe.turn"));
    }
}
