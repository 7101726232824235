//! Servers whose daemon is dead.
//!
//! A server is a child of its daemon and stays when that is killed; a new daemon doesn't know it
//! (facts/mps.md 4.2). It is found by its program and by the pipe directory in its environment.

use std::time::Instant;

use super::ProcessDaemon;
use crate::census::{CONTROL, SERVER};
use crate::daemon::ControlDaemon as _;
use crate::error::{DaemonError, DaemonFault};
use crate::pid::Pid;
use crate::procfs::ProcessHandle;

impl ProcessDaemon {
    pub(super) fn kill_orphans(&self) -> Result<Vec<Pid>, DaemonError> {
        let orphans = self.orphaned_servers()?;
        for handle in &orphans {
            tracing::info!(gpu = %self.site.gpu, pid = %handle.id().pid, "killing an orphaned MPS server");
            self.kill_and_wait(handle)?;
        }
        Ok(orphans.iter().map(|handle| handle.id().pid).collect())
    }

    pub(super) fn orphaned_servers(&self) -> Result<Vec<ProcessHandle>, DaemonError> {
        let mut servers = self.processes_here(SERVER)?;
        servers.retain(|handle| self.has_daemon(handle.id().pid) == Some(false));
        Ok(servers)
    }

    /// Live daemons of this site that don't hold the lock in its directory: somebody has removed
    /// the directory that they were started in, and nobody can talk to them any more.
    pub(super) fn lost_daemons(&self) -> Result<Vec<ProcessHandle>, DaemonError> {
        let holder = self.holder()?;
        let mut daemons = self.processes_here(CONTROL)?;
        daemons.retain(|handle| Some(handle.id()) != holder);
        Ok(daemons)
    }

    /// Processes of a program that were started for this pipe directory. One that can't be looked
    /// into isn't: with our privileges we couldn't have started it.
    fn processes_here(&self, program: &str) -> Result<Vec<ProcessHandle>, DaemonError> {
        let listed = self.proc.pids();
        let pids = listed.map_err(|error| self.file_error("listing", self.proc.root(), error))?;
        Ok(pids.into_iter().filter_map(|pid| self.process_here(pid, program)).collect())
    }

    fn process_here(&self, pid: Pid, program: &str) -> Option<ProcessHandle> {
        if self.proc.program(pid).ok()??.as_os_str() != program {
            return None;
        }
        let handle = ProcessHandle::open(&self.proc, pid).ok()??;
        // Read again now that the handle holds the process: its id may have been used anew.
        let is_it = self.proc.program(pid).ok()??.as_os_str() == program;
        let environment = self.proc.environment(pid).ok()??;
        let is_here = environment.get("CUDA_MPS_PIPE_DIRECTORY").as_deref()
            == Some(self.site.pipe.path().as_os_str());
        (is_it && is_here).then_some(handle)
    }

    /// Whether a server's parent is a control daemon, also one whose lock isn't to be found any
    /// more: somebody may have removed its directory, and its clients live on.
    fn has_daemon(&self, server: Pid) -> Option<bool> {
        let parent = self.proc.stat(server).ok()??.parent;
        // The one that orphans are given to may not be ours to look into.
        let program = parent.and_then(|parent| self.proc.program(parent).ok().flatten());
        Some(program.is_some_and(|program| program.as_os_str() == CONTROL))
    }

    pub(super) fn kill_and_wait(&self, handle: &ProcessHandle) -> Result<(), DaemonError> {
        let pid = handle.id().pid;
        let failed = self.process_error("killing", pid);
        handle.kill().map_err(&failed)?;
        let gone = handle.wait(Instant::now() + self.patience.end).map_err(&failed)?;
        if gone {
            return Ok(());
        }
        Err(self.error(DaemonFault::StillRunning { pid, waited: self.patience.end }))
    }
}
