//! Pods that aren't there: cgroups with the names that the kubelet and a runtime give them, so that
//! a supervisor counts a client as a pod's.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use mpshare_mps::Pid;

/// Below this all groups of the suite are.
const TOP: &str = "mpshare-gpu-suite.slice";

/// How processes come into a pod.
#[derive(Debug, Clone)]
pub(crate) enum Cgroups {
    /// By groups of this machine, of either version.
    Made,
    /// By files below a directory that stands in for `/proc` where cgroups are read.
    Told(PathBuf),
}

impl Cgroups {
    /// Puts a process into a container of the pod with that UID.
    pub(crate) fn place(&self, process: Pid, pod: &str) -> Result<()> {
        match self {
            Self::Made => hierarchies()
                .iter()
                .try_for_each(|hierarchy| join(hierarchy, process, pod))
                .context("no cgroup can be made"),
            Self::Told(proc) => {
                let directory = proc.join(process.to_string());
                fs::create_dir_all(&directory)?;
                let text = format!("0::/{}\n", group(pod).display());
                Ok(fs::write(directory.join("cgroup"), text)?)
            }
        }
    }
}

/// The group of a pod's one container.
fn group(pod: &str) -> PathBuf {
    let id = pod.bytes().filter(u8::is_ascii_hexdigit).chain(std::iter::repeat(b'0')).take(64);
    let id: String = id.map(char::from).collect();
    Path::new(TOP)
        .join(format!("kubepods-burstable-pod{}.slice", pod.replace('-', "_")))
        .join(format!("cri-containerd-{id}.scope"))
}

/// Where groups count: the one of version 2, or those of version 1 that the product looks at.
fn hierarchies() -> Vec<PathBuf> {
    let mounted = Path::new("/sys/fs/cgroup");
    if mounted.join("cgroup.controllers").exists() {
        return vec![mounted.to_owned()];
    }
    ["memory", "pids"].map(|name| mounted.join(name)).into()
}

fn join(hierarchy: &Path, process: Pid, pod: &str) -> io::Result<()> {
    let directory = hierarchy.join(group(pod));
    fs::create_dir_all(&directory)?;
    fs::write(directory.join("cgroup.procs"), process.to_string())
}

/// Removes all groups of the suite that nobody is in.
pub(crate) fn remove() {
    for hierarchy in hierarchies() {
        remove_tree(&hierarchy.join(TOP));
    }
}

/// Directories only: the files in them aren't anybody's to remove.
fn remove_tree(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    // One with a process in it stays until that is gone.
    drop(fs::remove_dir(directory));
}

#[cfg(test)]
mod tests {
    use mpshare_mps::procfs::{Home, home_of};

    use super::*;

    #[test]
    fn the_product_reads_the_pod_out_of_the_group() {
        let pod = "3f0a1b2c-0000-4000-8000-00000000000a";
        let Home::Pod(found) = home_of(&format!("0::/{}\n", group(pod).display())) else {
            panic!("no pod");
        };
        assert_eq!(found.pod.as_str(), pod);
        assert_eq!(found.container.unwrap().as_str().len(), 64);
    }
}
