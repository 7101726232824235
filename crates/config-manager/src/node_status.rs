//! What counts of the Node's status: the extended resources that say that another system manages
//! its cards, and what of ours is there, which others may have changed.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Client;

use crate::backoff::Doubling;
use crate::inventory::Annotations;
use crate::published::{Published, Sight, SlimNode, SlimStatus};

/// What the resources of Tencent's qGPU begin with: `qgpu-core`, `qgpu-memory`,
/// `qgpu-core-greedy` (cloud.tencent.com/document/product/457/59103).
const QGPU: &str = "tke.cloud.tencent.com/qgpu-";

const FIRST_RETRY: Duration = Duration::from_millis(200);
const LONGEST_RETRY: Duration = Duration::from_secs(15);

/// Reads one node's status.
#[derive(Clone)]
pub(crate) struct NodeStatusReader {
    client: Client,
    node: String,
}

/// What was read. Nothing where it can't be read at all.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeStatusFacts {
    /// A resource of qGPU that the node has.
    pub(crate) qgpu: Option<String>,
    /// What of ours is there.
    pub(crate) sight: Option<Sight>,
}

impl NodeStatusReader {
    pub(crate) const fn new(client: Client, node: String) -> Self {
        Self { client, node }
    }

    /// Asks until there is an answer: without one a config might be put in force that must not be.
    pub(crate) async fn facts(&self) -> NodeStatusFacts {
        let mut waits = Doubling::new(FIRST_RETRY, LONGEST_RETRY);
        let mut has_complained = false;
        loop {
            match SlimNode::read(&self.client, &self.node).await {
                Ok(node) => return facts(node),
                // No such node, or no right to read it: nothing will come of asking again.
                Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
                    tracing::warn!(reason = status.reason, "the node's status can't be read");
                    return NodeStatusFacts::default();
                }
                Err(error) => {
                    if !has_complained {
                        tracing::warn!(%error, "the node's status can't be read, retrying");
                        has_complained = true;
                    }
                    tokio::time::sleep(waits.wait()).await;
                }
            }
        }
    }
}

fn facts(node: SlimNode) -> NodeStatusFacts {
    let SlimStatus { capacity, conditions } = node.status;
    let sight = Some(Sight {
        version: node.metadata.resource_version,
        condition: Published::among(conditions),
        annotations: Annotations::among(&node.metadata.annotations),
    });
    NodeStatusFacts { qgpu: of_qgpu(capacity), sight }
}

/// The kubelet keeps the name of a resource whose plugin is gone, with a capacity of 0
/// (facts/kubernetes.md 1.4).
fn of_qgpu(capacity: BTreeMap<String, String>) -> Option<String> {
    let mut capacity = capacity.into_iter();
    let (resource, _) = capacity.find(|(name, amount)| name.starts_with(QGPU) && amount != "0")?;
    Some(resource)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(capacity: &serde_json::Value) -> Option<String> {
        let node = json!({"metadata": {"name": "n"}, "status": {"capacity": capacity}});
        facts(serde_json::from_value(node).unwrap()).qgpu
    }

    #[test]
    fn a_resource_of_qgpu_counts_as_long_as_the_node_has_some_of_it() {
        let memory = json!({"nvidia.com/gpu": "2", "tke.cloud.tencent.com/qgpu-memory": "15"});
        assert_eq!(found(&memory).as_deref(), Some("tke.cloud.tencent.com/qgpu-memory"));
        assert_eq!(found(&json!({"tke.cloud.tencent.com/qgpu-core": "0"})), None);
        assert_eq!(found(&json!({"nvidia.com/gpu": "2"})), None);
        assert_eq!(facts(SlimNode::default()).qgpu, None);
    }
}
