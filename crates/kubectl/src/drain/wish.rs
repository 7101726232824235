//! The annotation with which cards are emptied: what it becomes, and its write.
//!
//! The write names the version of the Node that it was made from, so that of two people who write
//! at once the later one begins anew, with what the earlier one wrote.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node as ApiNode;
use kube::Resource as _;
use kube::api::{Patch, PatchParams, Request};
use mpshare_api::drain::{DrainError as ParseError, DrainWish};
use mpshare_api::names::DRAIN;
use mpshare_core::{Drain, GpuUuid};
use serde_json::{Value, json};
use thiserror::Error;

use super::target::Cards;
use crate::cluster::{Cluster, ClusterError};
use crate::objects::{self, Node};

/// How often a write is begun anew: a kubelet and others write to the same Node all the time.
const ATTEMPTS: u32 = 30;
const PAUSE: Duration = Duration::from_millis(20);

/// Whether there was something to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    Changed,
    Already,
}

/// Why the annotation isn't what it should be.
#[derive(Debug, Error)]
pub(crate) enum WishError {
    /// The cluster doesn't tell, or refuses.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// Something else than we wrote stands there.
    #[error(
        "annotation `{DRAIN}` of the node can't be read: {0}; hint: `kubectl mpshare undrain NODE` \
         removes it"
    )]
    Unreadable(#[from] ParseError),
    /// One card of all can't be left out where the others aren't known.
    #[error(
        "all GPUs of the node are drained, and it doesn't tell which those are; hint: `kubectl \
         mpshare undrain NODE` puts all of them into service"
    )]
    OthersUnknown,
    /// Somebody else was faster each time.
    #[error("the node changes faster than it can be written; hint: try again")]
    Contended,
}

/// The wish with these cards too.
pub(crate) fn with(before: Option<&str>, cards: &Cards) -> Result<Drain, WishError> {
    let before = read(before)?;
    Ok(match (before, cards) {
        (Drain::All, _) | (_, Cards::All) => Drain::All,
        (Drain::Nothing, Cards::One { uuid, .. }) => Drain::Cards([uuid.clone()].into()),
        (Drain::Cards(mut gpus), Cards::One { uuid, .. }) => {
            gpus.insert(uuid.clone());
            Drain::Cards(gpus)
        }
    })
}

/// The wish without these cards, of `all` that the node has.
pub(crate) fn without(
    before: Option<&str>,
    cards: &Cards,
    all: &[GpuUuid],
) -> Result<Drain, WishError> {
    let Cards::One { uuid, .. } = cards else { return Ok(Drain::Nothing) };
    let mut gpus = match read(before)? {
        Drain::Nothing => return Ok(Drain::Nothing),
        Drain::All if all.is_empty() => return Err(WishError::OthersUnknown),
        Drain::All => all.iter().cloned().collect(),
        Drain::Cards(gpus) => gpus,
    };
    gpus.remove(uuid);
    Ok(if gpus.is_empty() { Drain::Nothing } else { Drain::Cards(gpus) })
}

fn read(annotation: Option<&str>) -> Result<Drain, WishError> {
    Ok(annotation.map(str::parse::<DrainWish>).transpose()?.unwrap_or_default().0)
}

/// Makes the annotation what `next` makes of it.
pub(crate) async fn write(
    cluster: &Cluster,
    node: &str,
    next: impl Fn(Option<&str>) -> Result<Drain, WishError>,
) -> Result<Written, WishError> {
    for attempt in 0..ATTEMPTS {
        let found = objects::node(&cluster.client, node).await;
        let found = found.map_err(|error| cluster.explain("get", "nodes", error))?;
        let found = found.ok_or_else(|| ClusterError::NoSuchNode(node.to_owned()))?;
        let before = found.metadata.annotation(DRAIN);
        let wish = DrainWish(next(before)?);
        let text = (!wish.is_nothing()).then(|| wish.to_annotation());
        if before == text.as_deref() {
            return Ok(Written::Already);
        }
        match patch(cluster, &found, text).await {
            Ok(()) => return Ok(Written::Changed),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                tokio::time::sleep(PAUSE.saturating_mul(attempt)).await;
            }
            Err(error) => return Err(cluster.explain("patch", "nodes", error).into()),
        }
    }
    Err(WishError::Contended)
}

async fn patch(cluster: &Cluster, node: &Node, text: Option<String>) -> Result<(), kube::Error> {
    let patch = json!({"metadata": {
        "resourceVersion": node.metadata.resource_version,
        "annotations": {DRAIN: text},
    }});
    let request = Request::new(ApiNode::url_path(&(), None));
    let request = request.patch(&node.metadata.name, &PatchParams::default(), &Patch::Merge(patch));
    let request = request.map_err(kube::Error::BuildRequest)?;
    cluster.client.request::<Value>(request).await.map(drop)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A node with these cards.
    pub(crate) fn node(uuids: &[&str]) -> Node {
        let card = |(index, uuid): (usize, &&str)| {
            json!({"uuid": uuid, "index": index, "model": "Tesla T4", "memoryMiB": 15360,
                "unitMiB": 1024, "units": 15, "state": "Ready"})
        };
        let gpus: Vec<Value> = uuids.iter().enumerate().map(card).collect();
        let annotations = json!({"mpshare.io/gpus": Value::from(gpus).to_string()});
        let node = json!({"metadata": {"name": "n1", "annotations": annotations}});
        serde_json::from_value(node).unwrap()
    }

    fn one(uuid: &str) -> Cards {
        Cards::One { uuid: uuid.parse().unwrap(), index: 0 }
    }

    fn text(drain: Drain) -> String {
        DrainWish(drain).to_annotation()
    }

    #[test]
    fn cards_are_added_to_those_that_are_drained_already() {
        let drained = |before, cards: &Cards| text(with(before, cards).unwrap());
        assert_eq!(drained(None, &one("GPU-0a")), r#"{"gpus":["GPU-0a"]}"#);
        let first = Some(r#"{"gpus":["GPU-0a"]}"#);
        assert_eq!(drained(first, &one("GPU-0b")), r#"{"gpus":["GPU-0a","GPU-0b"]}"#);
        assert_eq!(drained(first, &Cards::All), r#"{"gpus":["*"]}"#);
        assert_eq!(drained(Some(r#"{"gpus":["*"]}"#), &one("GPU-0b")), r#"{"gpus":["*"]}"#);
        assert!(with(Some("nonsense"), &Cards::All).is_err());
    }

    #[test]
    fn one_card_less_than_all_is_the_others() {
        let all: Vec<GpuUuid> =
            ["GPU-0a", "GPU-0b", "GPU-0c"].iter().map(|uuid| uuid.parse().unwrap()).collect();
        let left = |before, cards: &Cards| text(without(before, cards, &all).unwrap());
        let star = Some(r#"{"gpus":["*"]}"#);
        assert_eq!(left(star, &one("GPU-0b")), r#"{"gpus":["GPU-0a","GPU-0c"]}"#);
        assert_eq!(left(star, &Cards::All), r#"{"gpus":[]}"#);
        assert_eq!(left(Some(r#"{"gpus":["GPU-0b"]}"#), &one("GPU-0b")), r#"{"gpus":[]}"#);
        assert_eq!(left(None, &one("GPU-0b")), r#"{"gpus":[]}"#);
        assert_eq!(left(Some("nonsense"), &Cards::All), r#"{"gpus":[]}"#, "it is removed");
        assert!(matches!(without(star, &one("GPU-0b"), &[]), Err(WishError::OthersUnknown)));
    }
}
