//! The node condition after an uninstall: nobody keeps it any more, so a clean node has none, and
//! that of another one says what is left. The annotations that say what a node hands out go from both.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, Request};
use kube::{Client, Resource as _};
use mpshare_api::names::{CONDITION, FIELD_MANAGER, GPU_COUNT, NODE_GPUS};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::nodes::ConcernedNode;
use crate::outcome::NodeOutcome;

/// The longest message, in bytes.
const MESSAGE_LIMIT: usize = 1024;

/// The condition's reason on a node that isn't clean.
const REASON: &str = "Uninstalled";

/// Removes the condition, or makes it say what is left. A node that never had it gets none.
pub(crate) async fn follow(
    client: &Client,
    node: &ConcernedNode,
    outcome: &NodeOutcome,
) -> Result<(), kube::Error> {
    if !node.has_condition {
        return Ok(());
    }
    let patch = if outcome.is_clean() { removal() } else { left(&outcome.sentence()) };
    let parameters =
        PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let request = Request::new(Node::url_path(&(), None))
        .patch_subresource("status", &node.name, &parameters, &Patch::Strategic(patch))
        .map_err(kube::Error::BuildRequest)?;
    client.request::<IgnoredAny>(request).await.map(drop)
}

/// The patch that removes condition and annotations and leaves all others alone.
pub(crate) fn removal() -> Value {
    json!({
        "metadata": no_annotations(),
        "status": {"conditions": [{"type": CONDITION, "$patch": "delete"}]},
    })
}

fn no_annotations() -> Value {
    json!({"annotations": {NODE_GPUS: null, GPU_COUNT: null}})
}

fn left(sentence: &str) -> Value {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let message = sentence.get(..sentence.floor_char_boundary(MESSAGE_LIMIT)).unwrap_or(sentence);
    let condition = json!({
        "type": CONDITION,
        "status": "False",
        "reason": REASON,
        "message": message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    });
    json!({"metadata": no_annotations(), "status": {"conditions": [condition]}})
}
