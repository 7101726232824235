//! The condition of the Node object, read once and then patched only where it differs.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{GetParams, Patch, PatchParams, Request};
use kube::{Client, Resource as _};
use mpshare_api::names::{CONDITION, FIELD_MANAGER};
use serde::Deserialize;
use serde_json::json;

use super::NodeCondition;
use crate::published::Published;

/// Reads and patches one Node's condition.
pub(super) struct NodeStatusClient {
    client: Client,
    node: String,
    known: Option<Known>,
}

/// What the API server is known to have.
struct Known {
    uid: String,
    condition: Option<Published>,
}

/// The few fields of a Node that are read; the whole object has many kilobytes.
#[derive(Deserialize)]
struct SlimNode {
    metadata: SlimMetadata,
    #[serde(default)]
    status: SlimStatus,
}

#[derive(Deserialize)]
struct SlimMetadata {
    #[serde(default)]
    uid: String,
}

#[derive(Default, Deserialize)]
struct SlimStatus {
    #[serde(default)]
    conditions: Vec<Published>,
}

impl NodeStatusClient {
    pub(super) const fn new(client: Client, node: String) -> Self {
        Self { client, node, known: None }
    }

    /// Asks the API again before anything is written next: somebody else may have changed it.
    pub(super) fn forget(&mut self) {
        self.known = None;
    }

    /// Makes the condition as wanted. The time of transition moves only with the status.
    pub(super) async fn publish(&mut self, wanted: &NodeCondition) -> Result<(), kube::Error> {
        let current = self.current(&wanted.uid).await?;
        let condition = &wanted.condition;
        if current.as_ref().is_some_and(|current| current.says(condition)) {
            return Ok(());
        }
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let transition = current
            .filter(|current| current.status == condition.state.as_str())
            .and_then(|current| current.last_transition_time);
        // A strategic merge patch by `type` leaves the kubelet's conditions alone, as the
        // kubelet's patches leave ours (facts/kubernetes.md 5).
        let patch = json!({"status": {"conditions": [{
            "type": CONDITION,
            "status": condition.state.as_str(),
            "reason": condition.reason,
            "message": condition.message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": transition.as_ref().unwrap_or(&now),
        }]}});
        // What the server has is unknown until it has answered.
        self.known = None;
        let parameters =
            PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let request = Request::new(Node::url_path(&(), None))
            .patch_subresource("status", &self.node, &parameters, &Patch::Strategic(patch))
            .map_err(kube::Error::BuildRequest)?;
        let node: SlimNode = self.client.request(request).await?;
        self.learn(node);
        Ok(())
    }

    /// The condition that the Node with this UID has now.
    async fn current(&mut self, uid: &str) -> Result<Option<Published>, kube::Error> {
        if self.known.as_ref().is_none_or(|known| known.uid != uid) {
            let request = Request::new(Node::url_path(&(), None))
                .get(&self.node, &GetParams::default())
                .map_err(kube::Error::BuildRequest)?;
            let node: SlimNode = self.client.request(request).await?;
            self.learn(node);
        }
        let known = self.known.as_ref();
        Ok(known.and_then(|known| known.condition.clone()))
    }

    fn learn(&mut self, node: SlimNode) {
        self.known = Some(Known {
            uid: node.metadata.uid,
            condition: Published::among(node.status.conditions),
        });
    }
}
