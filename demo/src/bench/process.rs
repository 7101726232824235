//! Memory and CPU of one process, as the kernel counts them.

use std::fs;

use anyhow::{Context as _, Result};

/// Resident memory in MiB.
pub(super) fn rss(pid: u32) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = text.lines().find(|line| line.starts_with("Rss:")).context("no Rss line")?;
    let kib: f64 = line.split_whitespace().nth(1).context("no figure")?.parse()?;
    Ok(kib / 1024.0)
}

/// CPU time of all threads in milliseconds; `schedstat` counts nanoseconds, `stat` only ticks.
pub(super) fn cpu(pid: u32) -> Result<f64> {
    let mut nanoseconds = 0.0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        nanoseconds += text.split_whitespace().next().context("no figure")?.parse::<f64>()?;
    }
    Ok(nanoseconds / 1_000_000.0)
}
