//! What the simulation itself costs whoever calls this library: a benchmark of the caller has to
//! know, since a real driver doesn't read a JSON file for each call.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use mpshare_sim_state::Store;
use rustix::time::{ClockId, clock_gettime};

/// CPU nanoseconds of all calls so far.
static SPENT: AtomicU64 = AtomicU64::new(0);

/// Does the work of a call. Where the simulated node has a directory `nvml-cpu`, the nanoseconds
/// of this process are in a file there that is named by its PID.
pub(crate) fn measured<T>(store: &Store, work: impl FnOnce() -> T) -> T {
    let directory = store.dir().join("nvml-cpu");
    if !directory.is_dir() {
        return work();
    }
    let before = now();
    let result = work();
    let spent = now().saturating_sub(before);
    let sum = SPENT.fetch_add(spent, Ordering::Relaxed).saturating_add(spent);
    // A benchmark that has just ended has no use for it.
    drop(fs::write(directory.join(std::process::id().to_string()), sum.to_string()));
    result
}

/// CPU time of this thread.
fn now() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}
