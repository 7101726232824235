//! Which nodes there is, or may be, something to do on.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, Request};
use kube::{Client, Resource as _};
use mpshare_api::names::{CONDITION, CONFIG_LABEL, SCHEDULE_LABEL};
use serde::Deserialize;

/// Labels that say by `true` that a node has a card: GPU feature discovery, node feature discovery.
const GPU_LABELS: [&str; 2] =
    ["nvidia.com/gpu.present", "feature.node.kubernetes.io/pci-10de.present"];

/// How many nodes are asked for at a time: one has many kilobytes.
const PAGE: u32 = 100;

/// A node that there may be something to do on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConcernedNode {
    /// Its name.
    pub(crate) name: String,
    /// Whether its kubelet works.
    pub(crate) is_up: bool,
    /// Whether it has our condition.
    pub(crate) has_condition: bool,
}

/// The few fields of a Node that are read.
#[derive(Deserialize)]
struct SlimNode {
    metadata: SlimMetadata,
    #[serde(default)]
    status: SlimStatus,
}

#[derive(Deserialize)]
struct SlimMetadata {
    name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
struct SlimStatus {
    #[serde(default)]
    conditions: Vec<SlimCondition>,
}

#[derive(Deserialize)]
struct SlimCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: PageMetadata,
    items: Vec<SlimNode>,
}

#[derive(Default, Deserialize)]
struct PageMetadata {
    #[serde(default, rename = "continue")]
    more: Option<String>,
}

/// Nodes with one of the labels by which the chart's own affinity chooses nodes, and those with our
/// condition, which config-manager gives to every node that it runs on: the affinity may be another
/// one, and somebody may have removed a label while daemons ran.
pub(crate) async fn concerned(client: &Client) -> Result<Vec<ConcernedNode>, kube::Error> {
    let mut nodes = Vec::new();
    let mut more: Option<String> = None;
    loop {
        let mut parameters = ListParams::default().limit(PAGE);
        parameters.continue_token = more.take();
        let request = Request::new(Node::url_path(&(), None))
            .list(&parameters)
            .map_err(kube::Error::BuildRequest)?;
        let page: Page = client.request(request).await?;
        nodes.extend(page.items.into_iter().filter_map(SlimNode::concerned));
        match page.metadata.more.filter(|token| !token.is_empty()) {
            Some(token) => more = Some(token),
            None => return Ok(nodes),
        }
    }
}

impl SlimNode {
    fn concerned(self) -> Option<ConcernedNode> {
        let labels = &self.metadata.labels;
        let is = |label: &str, value: &str| labels.get(label).is_some_and(|it| it == value);
        let condition = |kind| self.status.conditions.iter().find(|it| it.kind == kind);
        let has_condition = condition(CONDITION).is_some();
        let is_concerned = has_condition
            || GPU_LABELS.iter().any(|label| is(label, "true"))
            || labels.contains_key(CONFIG_LABEL)
            || is(SCHEDULE_LABEL, "mps");
        is_concerned.then(|| ConcernedNode {
            is_up: condition("Ready").is_some_and(|ready| ready.status == "True"),
            has_condition,
            name: self.metadata.name,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn concerned(
        labels: &serde_json::Value,
        conditions: &serde_json::Value,
    ) -> Option<ConcernedNode> {
        let node = json!({"metadata": {"name": "n", "labels": labels}, "status": {"conditions": conditions}});
        serde_json::from_value::<SlimNode>(node).unwrap().concerned()
    }

    #[test]
    fn a_node_is_chosen_by_each_of_the_labels_and_by_our_condition() {
        for labels in [
            json!({"nvidia.com/gpu.present": "true"}),
            json!({"feature.node.kubernetes.io/pci-10de.present": "true"}),
            json!({"nvidia.com/device-plugin.config": "mps-2x"}),
            json!({"ack.node.gpu.schedule": "mps"}),
        ] {
            assert!(concerned(&labels, &json!([])).is_some());
        }
        for labels in [
            json!({"nvidia.com/gpu.present": "false"}),
            json!({"ack.node.gpu.schedule": "cgpu"}),
            json!({}),
        ] {
            assert!(concerned(&labels, &json!([])).is_none());
        }
        let ours = json!([{"type": "MPSShareReady", "status": "False"}, {"type": "Ready", "status": "True"}]);
        let node = concerned(&json!({}), &ours).unwrap();
        assert!(node.has_condition && node.is_up);
    }
}
