//! What of ours is on the Node, as the API has it.

use mpshare_api::names::CONDITION;
use serde::Deserialize;

use crate::condition::Condition;
use crate::inventory::Annotations;

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
