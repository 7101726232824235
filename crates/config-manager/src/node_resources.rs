//! The extended resources of the node that say that another system manages its cards.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{GetParams, Request};
use kube::{Client, Resource as _};
use serde::Deserialize;

use crate::backoff::Doubling;

/// What the resources of Tencent's qGPU begin with: `qgpu-core`, `qgpu-memory`,
/// `qgpu-core-greedy` (cloud.tencent.com/document/product/457/59103).
const QGPU: &str = "tke.cloud.tencent.com/qgpu-";

const FIRST_RETRY: Duration = Duration::from_millis(200);
const LONGEST_RETRY: Duration = Duration::from_secs(15);

/// Reads one node's resources.
#[derive(Clone)]
pub(crate) struct NodeResources {
    client: Client,
    node: String,
}

/// The few fields of a Node that are read.
#[derive(Default, Deserialize)]
struct SlimNode {
    #[serde(default)]
    status: SlimStatus,
}

#[derive(Default, Deserialize)]
struct SlimStatus {
    #[serde(default)]
    capacity: BTreeMap<String, String>,
}

impl NodeResources {
    pub(crate) const fn new(client: Client, node: String) -> Self {
        Self { client, node }
    }

    /// A resource of qGPU that the node has. Asks until there is an answer: without one a config
    /// might be put in force that must not be.
    pub(crate) async fn of_qgpu(&self) -> Option<String> {
        let mut waits = Doubling::new(FIRST_RETRY, LONGEST_RETRY);
        let mut has_complained = false;
        loop {
            match self.read().await {
                Ok(node) => return of_qgpu(node),
                // No such node, or no right to read it: nothing will come of asking again.
                Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
                    tracing::warn!(reason = status.reason, "the node's resources can't be read");
                    return None;
                }
                Err(error) => {
                    if !has_complained {
                        tracing::warn!(%error, "the node's resources can't be read, retrying");
                        has_complained = true;
                    }
                    tokio::time::sleep(waits.wait()).await;
                }
            }
        }
    }

    async fn read(&self) -> Result<SlimNode, kube::Error> {
        let request = Request::new(Node::url_path(&(), None))
            .get(&self.node, &GetParams::default())
            .map_err(kube::Error::BuildRequest)?;
        self.client.request(request).await
    }
}

/// The kubelet keeps the name of a resource whose plugin is gone, with a capacity of 0
/// (facts/kubernetes.md 1.4).
fn of_qgpu(node: SlimNode) -> Option<String> {
    let mut capacity = node.status.capacity.into_iter();
    let (resource, _) = capacity.find(|(name, amount)| name.starts_with(QGPU) && amount != "0")?;
    Some(resource)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(capacity: &serde_json::Value) -> Option<String> {
        let node = json!({"metadata": {"name": "n"}, "status": {"capacity": capacity}});
        of_qgpu(serde_json::from_value(node).unwrap())
    }

    #[test]
    fn a_resource_of_qgpu_counts_as_long_as_the_node_has_some_of_it() {
        let memory = json!({"nvidia.com/gpu": "2", "tke.cloud.tencent.com/qgpu-memory": "15"});
        assert_eq!(found(&memory).as_deref(), Some("tke.cloud.tencent.com/qgpu-memory"));
        assert_eq!(found(&json!({"tke.cloud.tencent.com/qgpu-core": "0"})), None);
        assert_eq!(found(&json!({"nvidia.com/gpu": "2"})), None);
        assert_eq!(of_qgpu(SlimNode::default()), None);
    }
}
