//! Ending the daemon.
//!
//! What the front-end says about it is worth nothing: it ends with 0 when it was refused and with
//! 1 when all went well (facts/mps.md 4.3). The daemon has ended when its process has.

use std::time::{Duration, Instant};

use super::ProcessDaemon;
use super::ask::reply_fault;
use crate::error::{DaemonError, DaemonFault};
use crate::procfs::ProcessHandle;
use crate::replies;

impl ProcessDaemon {
    pub(super) fn quit_or_wait(&self, drain: Duration) -> Result<(), DaemonError> {
        if let Some(handle) = self.ours()? {
            self.quit_process(&handle, drain)?;
        }
        self.kill_orphans()?;
        Ok(())
    }

    fn quit_process(&self, handle: &ProcessHandle, drain: Duration) -> Result<(), DaemonError> {
        // Whole seconds; what 0 means isn't documented.
        let seconds = drain.as_millis().div_ceil(1000).max(1);
        let command = format!("quit -t {seconds}");
        let begin = Instant::now();
        let deadline = begin + drain.max(Duration::from_secs(1)) + self.patience.end;
        let _turn = self.turn(deadline)?;
        let failed = self.process_error("waiting for", handle.id().pid);
        while Instant::now() < deadline {
            let exchange = self.exchange(&format!("{command}\n"), deadline)?;
            let lines: Vec<String> = exchange.stdout.lines().map(str::to_owned).collect();
            replies::refused(&lines)
                .map_err(|error| self.error(reply_fault(error, command.clone())))?;
            // A front-end that comes back while the daemon lives wasn't heard: another session
            // is open. The daemon's last moments may outlast the front-end's, too.
            let pause = Instant::now() + Duration::from_millis(50);
            if handle.wait(pause.min(deadline)).map_err(&failed)? {
                return Ok(());
            }
        }
        Err(self.error(DaemonFault::StillRunning { pid: handle.id().pid, waited: begin.elapsed() }))
    }
}
