//! Where the device plugin's files are, and how long it waits for what.

use std::path::{Path, PathBuf};
use std::time::Duration;

use mpshare_api::MpsRoot;

/// Everything that the role is told at its start. What a person may change at any time is in
/// the config file instead.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directory of the sockets of kubelet and plugins, and of the kubelet's checkpoint.
    pub plugins_dir: PathBuf,
    /// The kubelet's pod resources socket.
    pub pod_resources_socket: PathBuf,
    /// The MPS root as this process sees it.
    pub mps_root: PathBuf,
    /// The MPS root as the container runtime sees it: mounts name host paths.
    pub host_mps_root: PathBuf,
    /// Where device nodes are, usually `/dev`.
    pub dev_root: PathBuf,
    /// Vendor and class of CDI names, for example `nvidia.com/gpu`.
    pub cdi_kind: String,
    /// How long things may take.
    pub timings: Timings,
}

/// How long things may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timings {
    /// The first registration waits this long for the supervisor's first verdict on each card,
    /// so that the first device list is right. Then it registers with what there is. Default 3 s.
    pub first_status: Duration,
    /// A config change on a card that was ready keeps its units on offer this long while the
    /// supervisor follows. Default 1 s.
    pub settle: Duration,
    /// An id that leaves the plan stays in the list, unhealthy, at least this long, because a
    /// kubelet that is handing it out panics when it vanishes (facts/kubernetes.md 1.3).
    /// Default 5 s.
    pub leaving: Duration,
    /// A share that nobody holds yet counts as held this long: its pod is being admitted.
    /// Default 10 s.
    pub admission: Duration,
    /// Pause between looks at who holds what while something is pending. Default 1 s.
    pub poll_pending: Duration,
    /// The same while nothing is. Default 10 s.
    pub poll_idle: Duration,
    /// Files and sockets are looked at this often, whatever inotify says. Default 5 s.
    pub recheck: Duration,
    /// How long `PreStartContainer` waits for a card before it fails and the kubelet tries
    /// again; the kubelet gives up after 30 s. Default 20 s.
    pub pre_start: Duration,
    /// How long the kubelet's question which units to hand out waits for the pod that it is about
    /// to be told of by config-manager: both learn of it from the API at the same time. Default 1 s.
    pub plan: Duration,
    /// Deadline of a call to the kubelet. Default 5 s.
    pub call: Duration,
    /// First pause after a failed registration, doubled each time. Default 10 ms.
    pub retry_first: Duration,
    /// Longest pause after a failed registration. Default 5 s.
    pub retry_longest: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            first_status: Duration::from_secs(3),
            settle: Duration::from_secs(1),
            leaving: Duration::from_secs(5),
            admission: Duration::from_secs(10),
            poll_pending: Duration::from_secs(1),
            poll_idle: Duration::from_secs(10),
            recheck: Duration::from_secs(5),
            pre_start: Duration::from_secs(20),
            plan: Duration::from_secs(1),
            call: Duration::from_secs(5),
            retry_first: Duration::from_millis(10),
            retry_longest: Duration::from_secs(5),
        }
    }
}

impl Options {
    /// The files of the node, at paths of this process.
    pub(crate) fn root(&self) -> MpsRoot {
        MpsRoot::new(&self.mps_root)
    }

    /// The files of the node, at paths of the host.
    pub(crate) fn host_root(&self) -> MpsRoot {
        MpsRoot::new(&self.host_mps_root)
    }

    /// What the host calls `path`, as this process sees it; unchanged where it isn't below the
    /// MPS root.
    pub(crate) fn seen_here(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.host_mps_root)
            .map_or_else(|_| path.to_owned(), |rest| self.mps_root.join(rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::options;

    #[test]
    fn a_host_path_is_found_where_this_process_sees_it() {
        let options = Options {
            mps_root: "/mps".into(),
            host_mps_root: "/run/nvidia/mps".into(),
            ..options(Path::new("/nowhere"))
        };
        let seen = options.seen_here(Path::new("/run/nvidia/mps/nvidia.com/gpu/GPU-ab/pipe"));
        assert_eq!(seen, Path::new("/mps/nvidia.com/gpu/GPU-ab/pipe"));
        assert_eq!(options.seen_here(Path::new("/elsewhere")), Path::new("/elsewhere"));
    }
}
