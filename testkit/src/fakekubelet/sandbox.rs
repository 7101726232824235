//! A pod's sandbox, as far as `/proc` shows it: the pause process that is there before the first
//! container is created and until the last one has ended.

use std::path::PathBuf;

use super::node::Node;
use super::pod::PodSpec;

/// Above every process id that Linux gives out: no process is behind it.
const FIRST_PID: u64 = 4_194_304;

/// The entry of the pause process; gone when this value is dropped.
#[derive(Debug)]
pub(super) struct Sandbox {
    entry: Option<PathBuf>,
}

impl Sandbox {
    /// Starts the sandbox of a pod.
    pub(super) fn start(node: &Node, pod: &PodSpec) -> Self {
        let Some(proc_root) = &node.options.proc_root else { return Self { entry: None } };
        let number = node.change(|state| state.devices.number());
        let entry = proc_root.join((FIRST_PID + number % 1_000_000).to_string());
        let id = "0".repeat(64);
        let cgroup = format!("0::/kubepods/besteffort/pod{}/{id}\n", pod.uid);
        let made = std::fs::create_dir_all(&entry)
            .and_then(|()| std::fs::write(entry.join("cgroup"), cgroup));
        if let Err(error) = made {
            tracing::error!(%error, pod = pod.name, "a sandbox has no cgroup file");
        }
        Self { entry: Some(entry) }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if let Some(entry) = &self.entry
            && let Err(error) = std::fs::remove_dir_all(entry)
        {
            tracing::debug!(%error, "no cgroup file of a sandbox to remove");
        }
    }
}
