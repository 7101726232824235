//! `mpshare host-exec`: becomes a program of the host, from inside a container.
//!
//! The supervisor starts NVIDIA's programs through it, so that a control daemon outlives the
//! supervisor's pod: the daemon lives in a cgroup of its own and in a mount namespace that comes
//! from the host's, with the card's shared memory at `/dev/shm`. One process, one way: each step
//! changes this very process, and the last one replaces it.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use crate::cgroup;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The mount namespace to enter.
    #[arg(long, default_value = "/proc/1/ns/mnt")]
    mount_namespace: PathBuf,
    /// The cgroup to join, below the root of each hierarchy; without it the cgroup stays.
    #[arg(long)]
    cgroup: Option<PathBuf>,
    /// Where cgroups are mounted in that namespace.
    #[arg(long, default_value = "/sys/fs/cgroup")]
    cgroup_mount: PathBuf,
    /// The directory that the program has at `/dev/shm`; without it the namespace's own.
    #[arg(long)]
    shm: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

/// Returns only when something failed.
pub(crate) fn run(args: &Args) -> Result<()> {
    enter(&args.mount_namespace)?;
    if let Some(cgroup) = &args.cgroup {
        cgroup::join(&args.cgroup_mount, cgroup)?;
    }
    if let Some(shm) = &args.shm {
        give_shared_memory(shm)?;
    }
    let (program, arguments) = args.command.split_first().context("no program")?;
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("can't run `{}`", program.display()))
}

pub(crate) fn enter(namespace: &Path) -> Result<()> {
    let what = || format!("can't enter the mount namespace `{}`", namespace.display());
    let file = File::open(namespace).with_context(what)?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Mount)).with_context(what)
}

/// Mounts a directory over `/dev/shm` in a mount namespace of this process's own. What the host
/// mounts later still arrives there; this mount stays here.
pub(crate) fn give_shared_memory(shm: &Path) -> Result<()> {
    let what = || format!("can't mount `{}` at `/dev/shm`", shm.display());
    #[expect(deprecated, reason = "sound for the mount namespace of a process with one thread")]
    rustix::thread::unshare(UnshareFlags::NEWNS).with_context(what)?;
    let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", slave).with_context(what)?;
    mount_bind(shm, "/dev/shm").with_context(what)
}
