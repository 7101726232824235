//! Daemons of ours that the plan doesn't name: those of a former config.
//!
//! One without clients is told to quit. That needs an answer, and where a server hangs at its start
//! there is none for ever: neither how many clients it has, nor an end of `quit`, which waits for
//! that server (facts/mps.md 4.2).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use mpshare_api::GpuPaths;
use mpshare_mps::{ControlDaemon, DaemonFault};
use tracing::warn;

use super::{Card, CardError, Live, count_clients};
use crate::steps::Stray;

/// Since when daemons have given no answer though they had no clients, by directory.
pub(crate) type Mute = BTreeMap<PathBuf, Instant>;

impl Card {
    /// Whoever holds a directory that the plan doesn't name.
    pub(super) fn look_at_stray(
        &mut self,
        daemon: &dyn ControlDaemon,
        paths: &GpuPaths,
    ) -> Result<Option<Live<Stray>>, CardError> {
        let dir = paths.dir();
        let found = self.ask_stray(daemon);
        let error = match found {
            Err(error) if error.is_daemons() => error,
            found => {
                self.mute.remove(dir);
                let stray = |clients| Stray { dir: dir.to_owned(), clients, is_mute: false };
                return Ok(found?.map(|live| live.map(stray)));
            }
        };
        // All of the card's clients, which may be those of another daemon: then it can wait.
        if self.clients_by_driver()? > 0 {
            self.mute.remove(dir);
            return Err(error);
        }
        let since = *self.mute.entry(dir.to_owned()).or_insert_with(Instant::now);
        if since.elapsed() < self.start_deadline {
            return Err(error);
        }
        Ok(Some(Live::Ours(Stray { dir: dir.to_owned(), clients: 0, is_mute: true })))
    }

    fn ask_stray(&mut self, daemon: &dyn ControlDaemon) -> Result<Option<Live<usize>>, CardError> {
        match self.holder(daemon)? {
            Some(Live::Ours(_)) => Ok(Some(Live::Ours(count_clients(daemon)?))),
            Some(Live::Foreign(pid)) => Ok(Some(Live::Foreign(pid))),
            None => Ok(None),
        }
    }

    /// Ends one that gives no answer and has no clients, with its server.
    pub(super) fn end_stray(&mut self, dir: &Path) -> Result<(), CardError> {
        warn!(
            gpu = %self.gpu.uuid, dir = %dir.display(),
            "ending an MPS daemon of a former config that gives no answer"
        );
        self.verified = None;
        self.daemon(&GpuPaths::at(dir.to_owned()))?.kill()?;
        self.mute.remove(dir);
        Ok(())
    }
}

impl CardError {
    /// Whether a daemon of ours couldn't be asked.
    fn is_daemons(&self) -> bool {
        matches!(self, Self::Daemon(error) if !matches!(*error.fault, DaemonFault::Foreign { .. }))
    }
}
