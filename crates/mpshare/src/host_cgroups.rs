//! `mpshare host-cgroups`: removes our cgroups on the host that are empty.
//!
//! A process of its own, because entering a mount namespace takes one with a single thread.

use std::path::PathBuf;

use anyhow::Result;

use crate::{cgroup, host_exec};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The mount namespace to enter.
    #[arg(long, default_value = "/proc/1/ns/mnt")]
    mount_namespace: PathBuf,
    /// The cgroup below which each card's daemon had its own.
    #[arg(long)]
    cgroup: PathBuf,
    /// Where cgroups are mounted in that namespace.
    #[arg(long, default_value = "/sys/fs/cgroup")]
    cgroup_mount: PathBuf,
}

/// Removes them.
pub(crate) fn run(args: &Args) -> Result<()> {
    host_exec::enter(&args.mount_namespace)?;
    cgroup::remove_empty(&args.cgroup_mount, &args.cgroup)
}
