//! How a fake kubelet is set up: where its files are and how long things take.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::pod::Image;

/// Limit of calls to the pod resources socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateLimit {
    /// None.
    Off,
    /// As the kubelet: 100 calls a second by all users together, bursts of 10.
    Kubelet,
}

/// Everything that a test may want to set. [`Options::in_directory`] gives working values.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name of the node.
    pub node_name: String,
    /// Directory of the sockets of kubelet and plugins, and of the checkpoint.
    pub device_plugins: PathBuf,
    /// Pod resources socket.
    pub pod_resources_socket: PathBuf,
    /// Logs and working directories of pods.
    pub pods: PathBuf,
    /// Where `<pid>/cgroup` is written for every process of a container, if anywhere.
    pub proc_root: Option<PathBuf>,
    /// What a `hostIPC` pod sees at `/dev/shm` when nothing is mounted there. `None` leaves
    /// `MPSHARE_SIM_SHM` unset.
    pub host_shm: Option<PathBuf>,
    /// Environment of all containers, below everything else: where simulated libraries are.
    pub env: BTreeMap<String, String>,
    /// What runs for an image name.
    pub images: BTreeMap<String, Image>,
    /// Seed of every random order that the kubelet chooses.
    pub seed: u64,
    /// A call to the plugin that takes longer is a violation.
    pub rpc_limit: Duration,
    /// How long `Register` waits for somebody to serve on the endpoint (kubelet: 10 s).
    pub dial_timeout: Duration,
    /// How long capacity outlives the plugin (kubelet: 5 min).
    pub endpoint_grace: Duration,
    /// Deadline of `PreStartContainer` (kubelet: 30 s).
    pub pre_start_timeout: Duration,
    /// Pause before a container that couldn't be created is tried again.
    pub create_retry: Duration,
    /// First pause of a container that keeps exiting (kubelet: 10 s); doubled each time.
    pub backoff: Duration,
    /// Longest pause of a container that keeps exiting (kubelet: 5 min).
    pub max_backoff: Duration,
    /// Least time between SIGTERM and SIGKILL after a forced deletion (kubelet: 2 s).
    pub min_grace: Duration,
    /// Limit of calls to the pod resources socket.
    pub rate_limit: RateLimit,
}

impl Options {
    /// All files below `directory`, short pauses, no rate limit. The directory's path has to be
    /// short: socket paths end at 107 bytes.
    pub fn in_directory(directory: &Path) -> Self {
        Self {
            node_name: "node-1".into(),
            device_plugins: directory.join("device-plugins"),
            pod_resources_socket: directory.join("pod-resources/kubelet.sock"),
            pods: directory.join("pods"),
            proc_root: None,
            host_shm: None,
            env: BTreeMap::new(),
            images: BTreeMap::new(),
            seed: 1,
            rpc_limit: Duration::from_secs(2),
            dial_timeout: Duration::from_secs(10),
            endpoint_grace: Duration::from_mins(5),
            pre_start_timeout: Duration::from_secs(30),
            create_retry: Duration::from_millis(50),
            backoff: Duration::from_millis(50),
            max_backoff: Duration::from_secs(1),
            min_grace: Duration::from_millis(200),
            rate_limit: RateLimit::Off,
        }
    }
}
