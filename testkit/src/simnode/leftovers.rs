//! Ending what outlives the product on purpose: MPS daemons, their servers, orphaned clients.
//!
//! Everything that runs on a simulated node has the node's own directory in its environment, so
//! it can be told from everything else on the machine.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use mpshare_sim_state::SIM_DIR_ENV;
use rustix::process::{Pid, Signal, kill_process};

/// PIDs of live processes of the node, this one excepted.
pub(super) fn processes(sim_dir: &Path) -> Vec<i32> {
    let mark = format!("{SIM_DIR_ENV}={}", sim_dir.display());
    let own = std::process::id();
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| u32::try_from(*pid) != Ok(own));
    pids.filter(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
    })
    .collect()
}

/// Kills them all and waits until they are gone; returns those that aren't after `deadline`.
pub(super) fn kill(sim_dir: &Path, deadline: Duration) -> Vec<i32> {
    let until = Instant::now() + deadline;
    loop {
        let left = processes(sim_dir);
        if left.is_empty() || Instant::now() > until {
            return left;
        }
        for pid in left.into_iter().filter_map(Pid::from_raw) {
            if let Err(error) = kill_process(pid, Signal::KILL) {
                tracing::debug!(%error, "process has ended already");
            }
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
}
