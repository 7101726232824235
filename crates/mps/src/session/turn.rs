//! Our own processes talk to a daemon one after another.
//!
//! A daemon serves one session at a time and answers the others at random (facts/mps.md 6.2). A
//! person with a shell can still be in between; that is what the retries are for.

use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use thiserror::Error;

/// The right to open a session; ends when dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _file: File,
}

/// Why there is no turn.
#[derive(Debug, Error)]
pub(crate) enum TurnError {
    /// The file can't be used.
    #[error("using `{}` failed", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Others held it all the time.
    #[error("`{}` was held by another process for {waited:?}", .path.display())]
    TimedOut {
        /// The file.
        path: PathBuf,
        /// For how long it was waited.
        waited: Duration,
    },
}

impl Turn {
    /// Waits for the turn of the file at `path` until `deadline`.
    pub(crate) fn take(path: &Path, deadline: Instant) -> Result<Self, TurnError> {
        let failed = |source| TurnError::File { path: path.to_owned(), source };
        let begin = Instant::now();
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(failed)?;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { _file: file }),
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) if Instant::now() < deadline => {
                    let pause = Duration::from_millis(1);
                    std::thread::sleep(pause + jitter(pause * 4));
                }
                Err(Errno::WOULDBLOCK) => {
                    return Err(TurnError::TimedOut {
                        path: path.to_owned(),
                        waited: begin.elapsed(),
                    });
                }
                Err(errno) => return Err(failed(errno.into())),
            }
        }
    }
}

/// A random part of `most`.
pub(super) fn jitter(most: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish() % 1024;
    most.mul_f64(f64::from(u32::try_from(random).unwrap_or(0)) / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_held_by_one_and_passed_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe.turn");
        let first = Turn::take(&path, Instant::now()).unwrap();
        let refused = Turn::take(&path, Instant::now());
        assert!(matches!(refused, Err(TurnError::TimedOut { .. })));
        drop(first);
        assert!(Turn::take(&path, Instant::now()).is_ok());
    }

    #[test]
    fn jitter_stays_below_its_bound() {
        let most = Duration::from_millis(10);
        assert!((0..1000).all(|_| jitter(most) < most));
    }
}
