//! What an adversarial tenant, a hasty operator and a dying machine do to a node.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use mpshare_api::{Allocations, read_document};
use mpshare_sim_state::{ProcessKind, SimState};
use mpshare_testkit::simnode::{Role, SimNode};
use rustix::process::{Pid, Signal, kill_process};

use crate::scene::logs;

mod api;
mod daemon;
mod damage;
mod disk;
mod kubelet;
mod removed;
mod silence;
mod tenant;

/// Sends a signal to one process that a test started, or that the node did.
fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// The PID of a role's process.
fn pid_of(node: &SimNode, role: Role) -> i32 {
    i32::try_from(node.role_pid(role).unwrap()).unwrap()
}

/// Memory of a process in MiB, as the kernel counts it.
fn resident_mib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

/// Lines that a role has logged so far.
fn log_lines(node: &SimNode, role: Role) -> usize {
    std::fs::read_to_string(node.log(role)).unwrap_or_default().lines().count()
}

/// Lines that contain `what`.
fn logged(node: &SimNode, role: Role, what: &str) -> usize {
    let text = std::fs::read_to_string(node.log(role)).unwrap_or_default();
    text.lines().filter(|line| line.contains(what)).count()
}

/// What must be true at any moment: nobody is over-committed, neither by the simulator's account
/// nor by the product's, and the kubelet lives.
fn check(node: &SimNode) {
    let state = node.store().read().unwrap();
    for gpu in &state.gpus {
        let limits = limits(&state, &gpu.uuid);
        let sum: u64 = limits.iter().fold(0, |sum, limit| sum.saturating_add(*limit));
        assert!(sum <= gpu.total_mib, "{limits:?} MiB on {}\n{}", gpu.uuid, logs(node));
    }
    let ledger = read_document::<Allocations>(&node.mps_root().allocations());
    let mut sums = BTreeMap::new();
    for record in ledger.ok().flatten().unwrap_or_default().records {
        *sums.entry(record.gpu).or_insert(0) += record.memory_mib;
    }
    for gpu in &state.gpus {
        let sum = sums.get(&gpu.uuid).copied().unwrap_or(0);
        assert!(sum <= gpu.total_mib, "ledger: {sum} MiB on {}\n{}", gpu.uuid, logs(node));
    }
    assert_eq!(node.kubelet().violations(), [], "{}", logs(node));
}

/// Limits of the clients of a card; one without any counts as unlimited.
fn limits(state: &SimState, gpu: &str) -> Vec<u64> {
    let mine = state.processes.iter().filter(|process| process.gpu == gpu);
    let users = mine.filter(|process| process.kind != ProcessKind::MpsServer);
    users.map(|process| process.limit_mib.unwrap_or(u64::MAX)).collect()
}

/// Looks again and again for so long: the invariants hold, and `more` does too.
async fn check_for(node: &SimNode, how_long: Duration, more: impl Fn()) {
    let until = Instant::now() + how_long;
    while Instant::now() < until {
        check(node);
        more();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Removes whatever is at `path`.
fn clear(path: &Path) {
    match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => std::fs::remove_dir_all(path).unwrap(),
        Ok(_) => std::fs::remove_file(path).unwrap(),
        Err(_) => {}
    }
}
