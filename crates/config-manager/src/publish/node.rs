//! Condition and annotations of the Node object, read once and then patched only where they differ.
//!
//! Both go through the status subresource, which takes annotations too (the kubelet relies on it):
//! so the right to patch nodes, and with it taints and labels, isn't needed.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, Request};
use kube::{Client, Resource as _};
use mpshare_api::names::{CONDITION, FIELD_MANAGER};
use serde_json::{Map, Value, json};

use super::NodeReport;
use crate::condition::Condition;
use crate::inventory::Annotations;
use crate::published::{Published, SlimNode};

/// Reads and patches one Node's condition and annotations.
pub(super) struct NodeStatusClient {
    client: Client,
    node: String,
    known: Option<Known>,
}

/// What the API server is known to have.
struct Known {
    uid: String,
    condition: Option<Published>,
    annotations: Annotations,
}

impl NodeStatusClient {
    pub(super) const fn new(client: Client, node: String) -> Self {
        Self { client, node, known: None }
    }

    /// Asks the API again before anything is written next: somebody else may have changed it.
    pub(super) fn forget(&mut self) {
        self.known = None;
    }

    /// Makes condition and annotations as wanted.
    pub(super) async fn publish(&mut self, wanted: &NodeReport) -> Result<(), kube::Error> {
        let known = self.known_of(&wanted.uid).await?;
        let mut patch = Map::new();
        if !known.condition.as_ref().is_some_and(|known| known.says(&wanted.condition)) {
            let status = status_with(&wanted.condition, known.condition.as_ref());
            patch.insert("status".to_owned(), status);
        }
        let differs = |annotations: &&Annotations| **annotations != known.annotations;
        if let Some(annotations) = wanted.annotations.as_ref().filter(differs) {
            let entries = annotations.entries().into_iter();
            let entries: BTreeMap<&str, &Option<String>> = entries.collect();
            patch.insert("metadata".to_owned(), json!({"annotations": entries}));
        }
        if patch.is_empty() {
            return Ok(());
        }
        // What the server has is unknown until it has answered.
        self.known = None;
        let parameters =
            PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let request = Request::new(Node::url_path(&(), None))
            .patch_subresource("status", &self.node, &parameters, &Patch::Strategic(patch))
            .map_err(kube::Error::BuildRequest)?;
        let node: SlimNode = self.client.request(request).await?;
        self.known = Some(Known::of(node));
        Ok(())
    }

    /// What the Node with this UID has now.
    async fn known_of(&mut self, uid: &str) -> Result<&Known, kube::Error> {
        let known = if let Some(known) = self.known.take().filter(|known| known.uid == uid) {
            known
        } else {
            Known::of(SlimNode::read(&self.client, &self.node).await?)
        };
        Ok(self.known.insert(known))
    }
}

impl Known {
    fn of(node: SlimNode) -> Self {
        Self {
            uid: node.metadata.uid,
            condition: Published::among(node.status.conditions),
            annotations: Annotations::among(&node.metadata.annotations),
        }
    }
}

/// A status with the condition alone: a strategic merge patch by `type` leaves the kubelet's
/// conditions alone, as the kubelet's patches leave ours (facts/kubernetes.md 5). The time of
/// transition moves only with the status.
fn status_with(condition: &Condition, current: Option<&Published>) -> Value {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let transition = current
        .filter(|current| current.status == condition.state.as_str())
        .and_then(|current| current.last_transition_time.as_ref());
    json!({"conditions": [{
        "type": CONDITION,
        "status": condition.state.as_str(),
        "reason": condition.reason,
        "message": condition.message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": transition.unwrap_or(&now),
    }]})
}
