//! Processes of one run, told by a variable that all of them inherit: daemons, servers, clients,
//! supervisors, also those whose parent is gone.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use mpshare_mps::procfs::Proc;
use mpshare_mps::{Pid, ProcessHandle};

/// The variable; its value is the directory of the run.
pub(crate) const MARK: &str = "MPSHARE_GPU_SUITE";

/// The live processes of the run, but this one.
pub(crate) fn processes(root: &Path) -> Vec<ProcessHandle> {
    let mark = format!("{MARK}={}", root.display());
    let own = i32::try_from(std::process::id()).ok().and_then(Pid::new);
    let proc = Proc::default();
    let pids = proc.pids().unwrap_or_default().into_iter().filter(|pid| Some(*pid) != own);
    let held = pids.filter_map(|pid| ProcessHandle::open(&proc, pid).ok().flatten());
    // Read after it was taken hold of, so that both are about the same process.
    held.filter(|handle| has_mark(handle.id().pid, &mark)).collect()
}

fn has_mark(pid: Pid, mark: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
}

/// How a process is shown to people: its id and its command line.
pub(crate) fn described(pid: Pid) -> String {
    let words = Proc::default().arguments(pid).ok().flatten().unwrap_or_default();
    format!("{pid} ({})", words.join(" "))
}

/// Kills processes and waits until they are gone, at most for `patience`.
pub(crate) fn kill(processes: &[ProcessHandle], patience: Duration) {
    let until = Instant::now() + patience;
    for process in processes {
        // One that can't be killed shows in the look that follows.
        drop(process.kill());
    }
    for process in processes {
        drop(process.wait(until));
    }
}
