//! Between the fake API server and the fake kubelet: what kubelet and node lifecycle do in a real
//! cluster, for one node.
#![expect(
    clippy::indexing_slicing,
    reason = "indexing a JSON value yields null, it does not panic"
)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::fakekube::{ApiError, ChangeKind, FakeKube, LogRequest, PodLogs};
use crate::fakekubelet::{FakeKubelet, PodChange, PodSpec};

/// Creates the Node object.
pub(super) async fn create_node(kube: &FakeKube, name: &str) -> Result<(), ApiError> {
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name,
            "nvidia.com/gpu.present": "true",
        }},
        "spec": {},
        "status": {
            "capacity": {"cpu": "16", "memory": "64Gi", "pods": "110"},
            "allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"},
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": name},
            ],
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady",
                "message": "kubelet is posting ready status"}],
            "nodeInfo": {"kubeletVersion": "v1.34.0", "containerRuntimeVersion": "containerd://2.0",
                "operatingSystem": "linux", "architecture": "amd64"},
        },
    });
    kube.create(node).await.map(drop)
}

/// Carries pods to the kubelet and their statuses back, until it is dropped with its runtime.
pub(super) async fn run(kube: Arc<FakeKube>, kubelet: Arc<FakeKubelet>, sync_every: Duration) {
    let statuses = kubelet.subscribe();
    kube.set_logs(Arc::new(Logs(Arc::clone(&kubelet))));
    let mut bridge = Bridge {
        node: kubelet.options().node_name.clone(),
        kube,
        kubelet,
        admitted: BTreeSet::new(),
    };
    bridge.follow(statuses, sync_every).await;
}

struct Bridge {
    node: String,
    kube: Arc<FakeKube>,
    kubelet: Arc<FakeKubelet>,
    admitted: BTreeSet<String>,
}

impl Bridge {
    async fn follow(
        &mut self,
        mut statuses: mpsc::UnboundedReceiver<PodChange>,
        sync_every: Duration,
    ) {
        let mut changes = self.kube.changes();
        let mut sync = tokio::time::interval(sync_every);
        loop {
            tokio::select! {
                change = changes.next() => {
                    let Some(change) = change else { return };
                    if change.resource == "pods" {
                        self.pod_changed(change.kind, &change.object);
                    }
                }
                status = statuses.recv() => {
                    let Some(status) = status else { return };
                    self.status_changed(status).await;
                }
                _ = sync.tick() => self.sync_node().await,
            }
        }
    }

    fn pod_changed(&mut self, kind: ChangeKind, pod: &Value) {
        let Some(uid) = pod["metadata"]["uid"].as_str() else {
            return;
        };
        let handle = self.kubelet.pod(uid);
        if kind == ChangeKind::Deleted {
            if let Some(handle) = handle.filter(|handle| !handle.status().gone) {
                handle.force_delete();
            }
            return;
        }
        if pod["metadata"]["deletionTimestamp"].is_string() {
            let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or(0);
            if let Some(handle) = handle {
                handle.delete_with_grace(Duration::from_secs(grace));
            }
            return;
        }
        if pod["spec"]["nodeName"] == self.node.as_str() && self.admitted.insert(uid.to_owned()) {
            self.admit(pod);
        }
    }

    fn admit(&self, pod: &Value) {
        let spec = serde_json::from_value::<Pod>(pod.clone())
            .map_err(|error| error.to_string())
            .and_then(|pod| PodSpec::from_manifest(&pod).map_err(|error| error.to_string()));
        match spec {
            Ok(spec) => drop(self.kubelet.admit(spec)),
            Err(error) => tracing::error!(%error, "the fake kubelet can't run a pod"),
        }
    }

    async fn status_changed(&self, change: PodChange) {
        let PodChange { namespace, name, uid, status } = change;
        let kubernetes = serde_json::to_value(status.to_kubernetes()).unwrap_or_default();
        let patched = self.kube.patch_status("pods", &namespace, &name, kubernetes).await;
        if let Err(error) = patched {
            tracing::debug!(%error, name, "status of a pod that is gone");
        }
        if status.gone {
            drop(self.kube.confirm_pod_deletion(&namespace, &name, &uid).await);
        }
    }

    /// Capacity and allocatable, as each status sync of a kubelet writes them.
    async fn sync_node(&self) {
        let mut capacity = json!({});
        let mut allocatable = json!({});
        for (resource, amounts) in self.kubelet.node_status() {
            capacity[&resource] = json!(amounts.capacity.to_string());
            allocatable[&resource] = json!(amounts.allocatable.to_string());
        }
        let status = json!({"capacity": capacity, "allocatable": allocatable});
        let node = self.kube.get("nodes", "", &self.node).unwrap_or_default();
        let same = |part: &str| {
            let wanted = status[part].as_object().into_iter().flatten();
            wanted.into_iter().all(|(resource, count)| node["status"][part][resource] == *count)
        };
        if same("capacity") && same("allocatable") {
            return;
        }
        if let Err(error) = self.kube.patch_status("nodes", "", &self.node, status).await {
            tracing::warn!(%error, "node status can't be synced");
        }
    }
}

/// `kubectl logs`.
struct Logs(Arc<FakeKubelet>);

impl PodLogs for Logs {
    fn open(
        &self,
        request: LogRequest,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Bytes>, ApiError>> {
        let text = self.0.pod(&request.uid).map(|pod| pod.log(&request.container));
        Box::pin(async move {
            let text = text.unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let skip = request.tail_lines.map_or(0, |tail| lines.len().saturating_sub(tail));
            let shown: String = lines.iter().skip(skip).flat_map(|line| [line, "\n"]).collect();
            Ok(stream::once(async move { Bytes::from(shown) }).boxed())
        })
    }
}
