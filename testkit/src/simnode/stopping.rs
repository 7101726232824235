//! Stopping a process of the node, as a machine does that has too much to do.

use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};

use super::SimNode;

impl SimNode {
    /// Stops a process, but not while it holds the simulator's lock: that would stop the whole node,
    /// as no real driver does.
    pub async fn stop_process(&self, pid: i32) -> Result<()> {
        let path = self.store().dir().join("lock");
        let lock = std::fs::File::open(&path).context("the simulator's lock")?;
        loop {
            signal(pid, Signal::STOP);
            // The signal takes its time, and a thread that still runs may take the lock.
            while has_running_thread(pid) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            for _ in 0..20 {
                if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
                    flock(&lock, FlockOperation::Unlock)?;
                    return Ok(());
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            signal(pid, Signal::CONT);
        }
    }
}

/// Signals a process; one that is gone doesn't mind.
pub(crate) fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid)
        && let Err(error) = kill_process(pid, signal)
    {
        tracing::debug!(%error, "process has ended already");
    }
}

/// Whether a thread of a process isn't stopped, and hasn't ended.
fn has_running_thread(pid: i32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let stats =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok());
    stats.into_iter().any(|stat| {
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        state.is_some_and(|state| !matches!(state, 'T' | 't' | 'Z' | 'X'))
    })
}
