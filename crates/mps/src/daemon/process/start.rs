//! Starting the daemon.
//!
//! Between its launch and the setting of its limits a daemon would serve anybody without limits
//! (facts/mps.md 4.2). Nobody can get there: the pipe directory is a new one that no container has
//! mounted yet.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::time::{Duration, Instant};

use super::ProcessDaemon;
use crate::daemon::ControlDaemon as _;
use crate::error::{DaemonError, DaemonFault};
use crate::launch::DaemonSettings;
use crate::limits::DaemonLimits;
use crate::pid::ProcessId;

impl ProcessDaemon {
    pub(super) fn start_afresh(&self, limits: DaemonLimits) -> Result<ProcessId, DaemonError> {
        if let Some(id) = self.holder()? {
            return Err(self.error(DaemonFault::AlreadyRunning(id.pid)));
        }
        self.remove_orphans()?;
        self.make_directories()?;
        self.launch(limits).inspect_err(|_| {
            // A daemon without its limits must not stay; the first error is the one to tell.
            if let Err(error) = self.kill() {
                tracing::warn!(gpu = %self.site.gpu, %error, "a failed start left a daemon behind");
            }
        })
    }

    /// Directories for a new daemon: the pipe directory is never one that somebody has mounted.
    fn make_directories(&self) -> Result<(), DaemonError> {
        let (pipe, log) = (self.site.pipe.path(), self.site.log.as_path());
        match fs::remove_dir_all(pipe) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(self.file_error("removing", pipe, error)),
        }
        for directory in [pipe, log] {
            DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(directory)
                // Clients of any uid go through it, whatever the umask.
                .and_then(|()| fs::set_permissions(directory, Permissions::from_mode(0o755)))
                .map_err(|error| self.file_error("making", directory, error))?;
        }
        Ok(())
    }

    fn wait_for_holder(&self) -> Result<ProcessId, DaemonError> {
        let begin = Instant::now();
        loop {
            if let Some(id) = self.holder()? {
                return Ok(id);
            }
            let waited = begin.elapsed();
            if waited >= self.patience.start {
                return Err(self.error(DaemonFault::NoHolder { waited }));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn launch(&self, limits: DaemonLimits) -> Result<ProcessId, DaemonError> {
        let settings = DaemonSettings { percent: Some(limits.percent), ..self.settings() };
        self.launcher
            .launch(&self.site, &settings, self.patience.start)
            .map_err(|error| self.error(error.into()))?;
        let id = self.wait_for_holder()?;
        self.apply(limits)?;
        Ok(id)
    }
}
