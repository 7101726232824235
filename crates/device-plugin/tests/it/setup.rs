//! A node: fake kubelet, stand-in supervisor, the role.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mpshare_api::{Allocations, ChosenConfig, MpsRoot, read_document, write_document};
use mpshare_core::LiveShare;
use mpshare_device_plugin::{Options, Timings, run};
use mpshare_testkit::fakekubelet::{self, FakeKubelet, Phase, PodHandle, PodSpec, Violation, pod};
use tokio_util::sync::CancellationToken;

use crate::supervisor::{Supervisor, inventory};

pub(crate) const GPU: &str = "nvidia.com/gpu";
pub(crate) const SOON: Duration = Duration::from_secs(20);
const NONE: [Violation; 0] = [];

/// All of it, in a directory of its own.
pub(crate) struct Node {
    pub(crate) kubelet: FakeKubelet,
    pub(crate) supervisor: Supervisor,
    pub(crate) root: MpsRoot,
    pub(crate) options: Options,
    _directory: tempfile::TempDir,
}

/// The role as a task.
pub(crate) struct Plugin {
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Node {
    /// A node whose config shares all cards into `replicas`; the role doesn't run yet.
    pub(crate) async fn sharing(replicas: u32) -> Self {
        let node = Self::without_config().await;
        node.share(replicas);
        node
    }

    /// A node without a config.
    pub(crate) async fn without_config() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let kubelet_options = fakekubelet::Options::in_directory(directory.path());
        let mps_root = directory.path().join("mps");
        std::fs::create_dir_all(&mps_root).unwrap();
        let options = Options {
            plugins_dir: kubelet_options.device_plugins.clone(),
            pod_resources_socket: kubelet_options.pod_resources_socket.clone(),
            mps_root: mps_root.clone(),
            host_mps_root: mps_root.clone(),
            dev_root: "/dev".into(),
            cdi_kind: "nvidia.com/gpu".into(),
            timings: Timings {
                leaving: Duration::from_millis(500),
                admission: Duration::from_secs(1),
                poll_pending: Duration::from_millis(50),
                poll_idle: Duration::from_millis(500),
                recheck: Duration::from_millis(500),
                ..Timings::default()
            },
        };
        let root = MpsRoot::new(mps_root);
        Self {
            kubelet: FakeKubelet::start(kubelet_options).await.unwrap(),
            supervisor: Supervisor::start(root.clone()),
            root,
            options,
            _directory: directory,
        }
    }

    /// A node with the role registered and `units` healthy.
    pub(crate) async fn ready(replicas: u32, units: usize) -> (Self, Plugin) {
        let node = Self::sharing(replicas).await;
        let plugin = node.start();
        node.allocatable(units).await;
        (node, plugin)
    }

    pub(crate) fn start(&self) -> Plugin {
        Plugin::start(self.options.clone())
    }

    /// Puts a config in force that shares all cards.
    pub(crate) fn share(&self, replicas: u32) {
        let name = format!("mps-{replicas}x");
        let text = format!(
            "sharing: {{mps: {{resources: [{{name: nvidia.com/gpu, replicas: {replicas}}}]}}}}"
        );
        self.configure(&name, &text);
    }

    pub(crate) fn configure(&self, name: &str, text: &str) {
        let chosen = ChosenConfig {
            version: ChosenConfig::VERSION,
            name: name.into(),
            why: "the test says so".into(),
            text: text.into(),
            drain: mpshare_api::DrainWish::default(),
        };
        write_document(&self.root.config(), &chosen).unwrap();
    }

    pub(crate) async fn allocatable(&self, count: usize) {
        self.kubelet.wait_allocatable(GPU, count, SOON).await.unwrap();
    }

    /// A pod that holds `units` and sleeps.
    pub(crate) fn admit(&self, name: &str, units: usize) -> PodHandle {
        self.kubelet.admit(sleeper(name, units))
    }

    /// The same, once it runs.
    pub(crate) async fn running(&self, name: &str, units: usize) -> PodHandle {
        let pod = self.admit(name, units);
        pod.wait_phase(Phase::Running, SOON).await.unwrap();
        pod
    }

    /// The message of a pod that is refused.
    pub(crate) async fn refusal(&self, name: &str, units: usize) -> String {
        let pod = self.admit(name, units);
        let status = pod.wait_phase(Phase::Failed, SOON).await.unwrap();
        assert_eq!(status.reason.as_deref(), Some("UnexpectedAdmissionError"));
        status.message.unwrap()
    }

    /// The shares on record; none while the file is damaged.
    pub(crate) fn shares(&self) -> Vec<LiveShare> {
        let document = read_document::<Allocations>(&self.root.allocations());
        document.ok().flatten().unwrap_or_default().live()
    }

    /// Waits until that many shares are on record.
    pub(crate) async fn shares_are(&self, count: usize) {
        wait_until("number of shares on record", || self.shares().len() == count).await;
    }

    /// The sum of live shares is within every card, and no kubelet would have been broken.
    pub(crate) fn check(&self) {
        for gpu in inventory().gpus {
            let shares = self.shares();
            let of_card = || shares.iter().filter(|share| share.gpu == gpu.uuid);
            let memory: u64 = of_card().map(|share| share.share.memory.mib()).sum();
            // Units of memory have all threads each.
            let parts = of_card().filter(|share| share.resource.as_str().starts_with(GPU));
            let tenths: u32 = parts.map(|share| share.share.percent.tenths()).sum();
            assert!(memory <= gpu.memory.mib(), "{memory} MiB of {} on {gpu:?}", gpu.memory);
            assert!(tenths <= 1000, "{tenths} tenths on {gpu:?}");
        }
        assert_eq!(self.kubelet.violations(), NONE);
    }

    /// Healthy and all units of a resource in the kubelet's latest list.
    pub(crate) fn units(&self, resource: &str) -> (usize, usize) {
        let ids = self.kubelet.device_ids(resource);
        let healthy = ids.values().filter(|health| *health == "Healthy").count();
        (healthy, ids.len())
    }
}

impl Plugin {
    pub(crate) fn start(options: Options) -> Self {
        let shutdown = CancellationToken::new();
        let role = run(options, shutdown.clone());
        let task = tokio::spawn(async move { role.await.unwrap() });
        Self { shutdown, task }
    }

    /// Ends it as SIGTERM does.
    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap();
    }

    /// Drops it between two of its steps.
    pub(crate) async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

pub(crate) fn sleeper(name: &str, units: usize) -> PodSpec {
    pod(name).container("main").gpus(GPU, units).command(["sleep", "600"]).grace(Duration::ZERO)
}

/// The environment that a pod's container runs with.
pub(crate) fn given(pod: &PodHandle) -> BTreeMap<String, String> {
    pod.status().containers["main"].options.envs.clone()
}

/// Looks for that long whether something stays as it is.
pub(crate) async fn stays(what: &str, long: Duration, mut check: impl FnMut() -> bool) {
    let end = Instant::now() + long;
    while Instant::now() < end {
        assert!(check(), "didn't stay so: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) async fn wait_until(what: &str, mut check: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !check() {
        assert!(Instant::now() < deadline, "waited for: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
