//! Cgroups that the kernel keeps when everything else of a machine is gone.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::wait::eventually;

const MOUNT: &str = "/sys/fs/cgroup";

/// Makes a cgroup in each hierarchy (version 1), or the one (version 2).
pub(crate) fn create(cgroup: &Path) -> Result<()> {
    for hierarchy in hierarchies() {
        let mut group = hierarchy.clone();
        for part in cgroup {
            let above = group.clone();
            group.push(part);
            fs::create_dir_all(&group)
                .with_context(|| format!("can't make `{}`", group.display()))?;
            // A new cpuset takes no process before it has CPUs and memory nodes.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if group.join(file).is_file() && above.join(file).is_file() {
                    fs::write(group.join(file), fs::read(above.join(file))?)?;
                }
            }
        }
    }
    Ok(())
}

/// Removes a cgroup and what is below it. Processes in it have ended.
pub(crate) fn remove(cgroup: &Path) -> Result<()> {
    for group in paths(cgroup) {
        // Processes that were killed take a moment to leave.
        eventually(&format!("`{}` is removed", group.display()), Duration::from_secs(10), || {
            Ok(remove_tree(&group).map(|()| true)?)
        })?;
    }
    Ok(())
}

/// Removes what runs that were killed have left. `prefix` is followed by the PID of a run.
pub(crate) fn remove_stale(prefix: &str) {
    let groups = hierarchies().into_iter().flat_map(|dir| fs::read_dir(dir).into_iter().flatten());
    for path in groups.flatten().map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_over = |pid: &str| !Path::new("/proc").join(pid).exists();
        if name.strip_prefix(prefix).is_some_and(is_over) {
            // What is still in use belongs to somebody.
            drop(remove_tree(&path));
        }
    }
}

/// Where a cgroup is, or would be, in each hierarchy.
pub(crate) fn paths(cgroup: &Path) -> Vec<PathBuf> {
    hierarchies().into_iter().map(|hierarchy| hierarchy.join(cgroup)).collect()
}

fn hierarchies() -> Vec<PathBuf> {
    let mount = PathBuf::from(MOUNT);
    if mount.join("cgroup.controllers").is_file() {
        return vec![mount];
    }
    let entries = fs::read_dir(mount).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| !path.is_symlink() && path.join("cgroup.procs").is_file()).collect()
}

/// Removes one directory of a cgroup and what is below it; none is fine.
fn remove_tree(group: &Path) -> std::io::Result<()> {
    let Ok(entries) = fs::read_dir(group) else { return Ok(()) };
    for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
        remove_tree(&entry.path())?;
    }
    fs::remove_dir(group)
}
