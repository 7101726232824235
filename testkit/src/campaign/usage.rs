//! What the product's processes take, to see what they don't give back.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::simnode::{Role, SimNode};

/// What one process takes, or may take more than at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Open file descriptors.
    pub descriptors: usize,
    /// Threads.
    pub threads: usize,
    /// Resident memory in KiB.
    pub resident_kib: usize,
}

/// What is normal: a role is killed at some times and old at others, an allocator keeps what it
/// had when it read a damaged file of 2 MiB.
const SLACK: Usage = Usage { descriptors: 8, threads: 4, resident_kib: 24 * 1024 };

/// Files at the MPS root that are normal beyond those of the beginning: NVIDIA's daemon leaves some
/// in each pipe directory, and another resource has other ones.
const FILES: usize = 40;

/// A node at rest.
#[derive(Debug, Clone)]
pub struct Resting {
    /// By the product's processes.
    pub roles: BTreeMap<Role, Usage>,
    /// Files below the MPS root, without the directories.
    pub files: usize,
}

impl Resting {
    /// Measures a node.
    pub(super) fn measure(node: &SimNode) -> Result<Self> {
        let usage = |role: Role| {
            let pid = node.role_pid(role).context("a role doesn't run")?;
            Ok((role, Usage::of(pid)?))
        };
        let roles = Role::ALL.into_iter().map(usage).collect::<Result<_>>()?;
        Ok(Self { roles, files: files(node.mps_root().path()) })
    }

    /// Compares with a measure from the beginning.
    pub(super) fn check_against(&self, first: &Self) -> Result<()> {
        for (role, usage) in &self.roles {
            let Some(before) = first.roles.get(role) else { continue };
            ensure!(usage.is_within(*before), "{role} takes {usage:?}, at first {before:?}");
        }
        let (now, before) = (self.files, first.files);
        ensure!(now <= before + FILES, "{now} files at the MPS root, at first {before}");
        Ok(())
    }
}

impl Usage {
    fn of(pid: u32) -> Result<Self> {
        let count = |part: &str| Ok::<_, std::io::Error>(std::fs::read_dir(part)?.count());
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
        Ok(Self {
            descriptors: count(&format!("/proc/{pid}/fd"))?,
            threads: count(&format!("/proc/{pid}/task"))?,
            resident_kib: kib.context("no VmRSS")?,
        })
    }

    fn is_within(self, first: Self) -> bool {
        self.descriptors <= first.descriptors + SLACK.descriptors
            && self.threads <= first.threads + SLACK.threads
            && self.resident_kib <= first.resident_kib + SLACK.resident_kib
    }
}

/// How many files are below a directory.
fn files(directory: &Path) -> usize {
    let entries = std::fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    let count = entries.map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => files(&entry.path()),
        _ => 1,
    });
    count.sum()
}
