//! The node condition after an uninstall: nobody keeps it any more, so a clean node has none, and
//! that of another one says what is left and how to finish. It is what people see who don't read the
//! job's log. The annotations that say what a node hands out go from both.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, Request};
use kube::{Client, Resource as _};
use mpshare_api::names::{CONDITION, FIELD_MANAGER, GPU_COUNT, NODE_GPUS};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::Options;
use crate::nodes::ConcernedNode;
use crate::outcome::{Finish, NodeOutcome, Outcome};
use crate::patience::{AskError, Patience};

/// The longest sentence in the message, in bytes; the commands after it are always whole.
const SENTENCE_LIMIT: usize = 1024;

/// For how long it is tried.
const PATIENCE: Duration = Duration::from_secs(10);

/// The condition's reason on a node that isn't clean.
const REASON: &str = "Uninstalled";

/// Removes the condition, or makes it say what is left and how to finish. A node that never had it
/// gets one only when clients live on: what failed there may not even have begun.
pub(crate) async fn follow(
    client: &Client,
    options: &Options,
    node: &ConcernedNode,
    outcome: &NodeOutcome,
) -> Result<(), AskError> {
    let clients_live = matches!(outcome.outcome, Outcome::ClientsLive(_));
    if !node.has_condition && !clients_live {
        return Ok(());
    }
    let patch = if outcome.is_clean() {
        removal()
    } else {
        left(outcome, &Finish::of(&options.pod, &node.name))
    };
    let parameters =
        PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let patch = Patch::Strategic(patch);
    let request = || async {
        let request = Request::new(Node::url_path(&(), None))
            .patch_subresource("status", &node.name, &parameters, &patch)
            .map_err(kube::Error::BuildRequest)?;
        client.request::<IgnoredAny>(request).await.map(drop)
    };
    Patience::lasting(PATIENCE, options.look_every).ask(request).await
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

fn left(outcome: &NodeOutcome, finish: &Finish) -> Value {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = json!({
        "type": CONDITION,
        "status": "False",
        "reason": REASON,
        "message": message(&outcome.sentence(), finish),
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    });
    json!({"metadata": no_annotations(), "status": {"conditions": [condition]}})
}

fn message(sentence: &str, finish: &Finish) -> String {
    let end = sentence.floor_char_boundary(SENTENCE_LIMIT);
    let sentence = sentence.get(..end).unwrap_or(sentence);
    format!("{sentence}; to finish, when that has changed: {}", finish.line())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CleanupPod;

    #[test]
    fn a_long_sentence_is_cut_and_the_command_after_it_is_not() {
        let finish = Finish::of(&CleanupPod::default(), "n1");
        let message = message(&"\u{e4}".repeat(SENTENCE_LIMIT), &finish);
        assert!(message.ends_with(&finish.line()), "{message}");
        assert!(message.len() < SENTENCE_LIMIT + finish.line().len() + 64);
    }
}
