//! One node with the role running on it, and waits for what a test wants to see.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use mpshare_api::{ChosenConfig, MpsRoot, NodeStatus, read_document, write_document};
use mpshare_config_manager::{ConfigSource, Options, RunError, run};
use mpshare_testkit::fakekube::FakeKube;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) const NODE: &str = "gpu-1";
pub(crate) const LABEL: &str = "nvidia.com/device-plugin.config";
const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) struct Rig {
    pub(crate) kube: FakeKube,
    pub(crate) scratch: TempDir,
    pub(crate) root: MpsRoot,
    role: Option<(CancellationToken, JoinHandle<Result<(), RunError>>)>,
}

pub(crate) fn replicas(count: u32) -> String {
    format!(
        "sharing:\n  mps:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: {count}\n"
    )
}

pub(crate) fn node(labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": NODE, "labels": labels},
        "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady",
            "message": "", "lastHeartbeatTime": "2026-01-01T00:00:00Z",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    })
}

impl Rig {
    /// A cluster with the node and the presets; the role isn't started.
    pub(crate) async fn new(labels: &Value) -> Self {
        let kube = FakeKube::start().await.unwrap();
        kube.create(node(labels)).await.unwrap();
        let configs = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "nvidia-device-plugin-configs", "namespace": "kube-system"},
            "data": {"mps-1x": replicas(1), "mps-2x": replicas(2), "mps-4x": replicas(4),
                "gpu-mem": "sharing: {mps: {resources: [{name: gpu-mem, memoryUnit: 1Gi}]}}",
                "broken": "version: v1\nmps: {}\n"},
        });
        kube.create(configs).await.unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let root = MpsRoot::new(scratch.path().join("mps"));
        Self { kube, scratch, root, role: None }
    }

    /// A started role on a node with this config label.
    pub(crate) async fn on(config: &str) -> Self {
        let mut rig = Self::new(&json!({LABEL: config})).await;
        rig.start(|_| {});
        rig
    }

    pub(crate) fn start(&mut self, adjust: impl FnOnce(&mut Options)) {
        let mut options = Options {
            node: NODE.to_owned(),
            root: self.root.clone(),
            source: ConfigSource::default(),
            default_config: None,
            fallbacks: Vec::new(),
        };
        adjust(&mut options);
        let shutdown = CancellationToken::new();
        let client = self.kube.client().unwrap();
        let role = tokio::spawn(run(client, options, shutdown.clone()));
        self.role = Some((shutdown, role));
    }

    pub(crate) async fn stop(&mut self) {
        let (shutdown, role) = self.role.take().unwrap();
        shutdown.cancel();
        role.await.unwrap().unwrap();
    }

    pub(crate) fn in_force(&self) -> Option<ChosenConfig> {
        read_document(&self.root.config()).unwrap()
    }

    pub(crate) fn report(&self, status: &NodeStatus) {
        fs::create_dir_all(self.root.path()).unwrap();
        write_document(&self.root.status(), status).unwrap();
    }

    pub(crate) fn condition(&self, kind: &str) -> Option<Value> {
        let node = self.kube.get("nodes", "", NODE)?;
        let conditions = node["status"]["conditions"].as_array()?.clone();
        conditions.into_iter().find(|condition| condition["type"] == kind)
    }

    pub(crate) fn ours(&self) -> Option<(String, String)> {
        let condition = self.condition("MPSShareReady")?;
        let text = |field: &str| condition[field].as_str().map(str::to_owned);
        Some((text("status")?, text("reason")?))
    }

    /// Waits until the config of this name is in force.
    pub(crate) async fn until_in_force(&self, name: &str) -> ChosenConfig {
        until(&format!("config {name} in force"), || {
            self.in_force().filter(|config| config.name == name)
        })
        .await
    }

    /// Waits until our condition has this status and reason.
    pub(crate) async fn until_condition(&self, status: &str, reason: &str) -> Value {
        let wanted = Some((status.to_owned(), reason.to_owned()));
        until(&format!("condition {status} {reason}"), || {
            (self.ours() == wanted).then(|| self.condition("MPSShareReady").unwrap())
        })
        .await
    }

    /// An annotation of the node.
    pub(crate) fn annotation(&self, key: &str) -> Option<String> {
        let node = self.kube.get("nodes", "", NODE)?;
        Some(node["metadata"]["annotations"][key].as_str()?.to_owned())
    }

    pub(crate) fn events(&self, reason: &str) -> Vec<Value> {
        let mut events = self.kube.events_of("Node", NODE);
        events.retain(|event| event["reason"] == reason);
        events
    }
}

/// Waits for a value.
pub(crate) async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = look() {
            return value;
        }
        assert!(start.elapsed() < DEADLINE, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Mounts configs as the kubelet does: data in a dated directory, reached through `..data`.
pub(crate) fn mount(directory: &Path, date: &str, configs: &[(&str, &str)]) {
    let dated = directory.join(format!("..{date}"));
    fs::create_dir_all(&dated).unwrap();
    for (name, text) in configs {
        fs::write(dated.join(name), text).unwrap();
        let link = directory.join(name);
        if !link.is_symlink() {
            std::os::unix::fs::symlink(Path::new("..data").join(name), link).unwrap();
        }
    }
    let next = directory.join("..data_tmp");
    std::os::unix::fs::symlink(format!("..{date}"), &next).unwrap();
    fs::rename(next, directory.join("..data")).unwrap();
}
