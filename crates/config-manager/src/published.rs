//! The Node as the API has it: the few fields that are read, and what of ours is there.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::api::{GetParams, Request};
use kube::{Client, Resource as _};
use mpshare_api::names::CONDITION;
use serde::Deserialize;

use crate::condition::Condition;
use crate::inventory::Annotations;

/// The few fields of a Node that are read; the whole object has many kilobytes.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct SlimNode {
    pub(crate) metadata: SlimMetadata,
    #[serde(default)]
    pub(crate) status: SlimStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SlimMetadata {
    #[serde(default)]
    pub(crate) uid: String,
    #[serde(default)]
    pub(crate) resource_version: String,
    #[serde(default)]
    pub(crate) annotations: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct SlimStatus {
    #[serde(default)]
    pub(crate) capacity: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) conditions: Vec<Published>,
}

impl SlimNode {
    /// Asks the API for the Node of this name.
    pub(crate) async fn read(client: &Client, name: &str) -> Result<Self, kube::Error> {
        let request = Request::new(Node::url_path(&(), None))
            .get(name, &GetParams::default())
            .map_err(kube::Error::BuildRequest)?;
        client.request(request).await
    }
}

/// The condition's fields on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Published {
    #[serde(rename = "type")]
    kind: String,
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) reason: String,
    #[serde(default)]
    pub(crate) message: String,
    pub(crate) last_transition_time: Option<String>,
}

impl Published {
    /// Ours among all conditions of a Node.
    pub(crate) fn among(conditions: Vec<Self>) -> Option<Self> {
        conditions.into_iter().find(|condition| condition.kind == CONDITION)
    }

    /// Whether it says this.
    pub(crate) fn says(&self, condition: &Condition) -> bool {
        self.status == condition.state.as_str()
            && self.reason == condition.reason
            && self.message == condition.message
    }
}

/// What the Node had when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sight {
    /// The Node's resource version, which tells two sights of the same from one.
    pub(crate) version: String,
    /// The condition.
    pub(crate) condition: Option<Published>,
    /// The annotations of ours.
    pub(crate) annotations: Annotations,
}
