//! Our cgroups on the host, of either version: joining one, and removing those that are empty.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// For how long the kernel may take to be done with processes; for all groups together, since one
/// whose processes can't be seen from here looks the same in each hierarchy.
const LAST_MOMENTS: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(10);

/// Joins the cgroup in every hierarchy.
pub(crate) fn join(mount: &Path, cgroup: &Path) -> Result<()> {
    hierarchies(mount)?.iter().try_for_each(|hierarchy| join_one(hierarchy, cgroup))
}

/// Removes every cgroup below `cgroup` that has no process, and `cgroup` itself if none is left.
/// One with processes stays, and is no error.
pub(crate) fn remove_empty(mount: &Path, cgroup: &Path) -> Result<()> {
    remove_until(mount, cgroup, Instant::now() + LAST_MOMENTS)
}

fn remove_until(mount: &Path, cgroup: &Path, deadline: Instant) -> Result<()> {
    for hierarchy in hierarchies(mount)? {
        let group = hierarchy.join(cgroup.strip_prefix("/").unwrap_or(cgroup));
        let what = || format!("can't remove the cgroup `{}`", group.display());
        for inner in subdirectories(&group).with_context(what)? {
            remove(&inner, deadline).with_context(what)?;
        }
        remove(&group, deadline).with_context(what)?;
    }
    Ok(())
}

/// The one hierarchy of version 2, or each one of version 1.
fn hierarchies(mount: &Path) -> Result<Vec<PathBuf>> {
    if mount.join("cgroup.controllers").is_file() {
        return Ok(vec![mount.to_owned()]);
    }
    let mut hierarchies =
        subdirectories(mount).with_context(|| format!("no cgroups at `{}`", mount.display()))?;
    // Version 1 has links for hierarchies with two names.
    hierarchies.retain(|path| !path.is_symlink() && path.join("cgroup.procs").is_file());
    Ok(hierarchies)
}

/// Those of a group that isn't there are none.
fn subdirectories(group: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(group) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    Ok(paths.filter(|path| path.is_dir()).collect())
}

fn remove(group: &Path, deadline: Instant) -> io::Result<()> {
    loop {
        match fs::remove_dir(group) {
            // A process that has just ended is in its group for a moment longer.
            Err(error) if is_busy(&error) && has_no_process(group) && Instant::now() < deadline => {
                std::thread::park_timeout(PAUSE);
            }
            Err(error) if is_busy(&error) || error.kind() == io::ErrorKind::NotFound => {
                return Ok(());
            }
            result => return result,
        }
    }
}

fn is_busy(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::DirectoryNotEmpty)
}

fn has_no_process(group: &Path) -> bool {
    fs::read_to_string(group.join("cgroup.procs")).is_ok_and(|pids| pids.trim().is_empty())
        && subdirectories(group).is_ok_and(|inner| inner.is_empty())
}

fn join_one(hierarchy: &Path, cgroup: &Path) -> Result<()> {
    let group = hierarchy.join(cgroup.strip_prefix("/").unwrap_or(cgroup));
    let what = || format!("can't join the cgroup `{}`", group.display());
    fs::create_dir_all(&group).with_context(what)?;
    // A new cpuset takes no process before it has CPUs and memory nodes, from the top down.
    for ancestor in cgroup.iter().scan(hierarchy.to_owned(), |path, part| {
        if part != "/" {
            path.push(part);
        }
        Some(path.clone())
    }) {
        inherit_cpuset(&ancestor).with_context(what)?;
    }
    fs::write(group.join("cgroup.procs"), std::process::id().to_string()).with_context(what)
}

fn inherit_cpuset(group: &Path) -> io::Result<()> {
    let Some(parent) = group.parent() else { return Ok(()) };
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let (own, above) = (group.join(file), parent.join(file));
        if own.is_file() && above.is_file() && fs::read_to_string(&own)?.trim().is_empty() {
            fs::write(&own, fs::read_to_string(&above)?.trim())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_seem_empty_and_stay_busy_are_waited_for_once_and_left() {
        let mount = std::env::temp_dir().join(format!("mpshare-cgroups-{}", std::process::id()));
        let groups = ["cpu", "memory", "pids"].map(|hierarchy| {
            ["GPU-a", "GPU-b"].map(|gpu| mount.join(hierarchy).join("ours").join(gpu))
        });
        for group in groups.iter().flatten() {
            fs::create_dir_all(group).unwrap();
            // A file keeps a directory from being removed, as a process that can't be seen would.
            for ancestor in group.ancestors().take(3) {
                fs::write(ancestor.join("cgroup.procs"), "").unwrap();
            }
        }
        let wait = Duration::from_millis(200);
        let start = Instant::now();
        remove_until(&mount, Path::new("ours"), start + wait).unwrap();
        let took = start.elapsed();
        assert!((wait..2 * wait).contains(&took), "{took:?} for {} groups", 2 * groups.len());
        assert!(groups.iter().flatten().all(|group| group.exists()));
        fs::remove_dir_all(mount).unwrap();
    }
}
