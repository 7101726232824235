//! Which pods of a node hold shares of its cards, and which of these may be evicted.

use std::collections::BTreeSet;

use mpshare_api::inventory_annotation::NodeGpus;
use mpshare_api::names::{ALLOCATION, GPU_RESOURCE, MEMORY_RESOURCE, NODE_GPUS};
use mpshare_api::pod::Container;

use super::target::Cards;
use crate::annotations::allocation;
use crate::objects::{Node, OwnedPod};

/// Of the API's image of a static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// A pod that has shares of the cards, or may have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Holder {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) standing: Standing,
}

/// What can be done about a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    /// It can be evicted.
    Evictable,
    /// It is on its way already.
    Ending,
    /// Its `DaemonSet` would make it anew at once.
    DaemonSet,
    /// Its kubelet makes it from a file.
    Static,
    /// Nobody says which cards it has.
    Unplaced,
}

impl Standing {
    /// Why the pod is left alone; `None` where it isn't.
    pub(crate) const fn objection(self) -> Option<&'static str> {
        match self {
            Self::Evictable | Self::Ending => None,
            Self::DaemonSet => {
                Some("it is a DaemonSet's, which would make it anew; hint: exclude the node there")
            }
            Self::Static => Some("it is a static pod; hint: remove its file on the node"),
            Self::Unplaced => Some(
                "no annotation says which GPU it has; hint: evict it yourself, or drain the whole node",
            ),
        }
    }
}

/// The pods of a node that have shares of these cards, by namespace and name.
pub(crate) fn holders(node: &Node, pods: &[OwnedPod], cards: &Cards) -> Vec<Holder> {
    let ours = resources(node);
    let asking = pods.iter().filter(|owned| asks(owned, &ours) && !owned.pod.status.has_ended());
    let holder = |owned: &OwnedPod| {
        let metadata = &owned.pod.metadata;
        Some(Holder {
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            uid: metadata.uid.clone(),
            standing: standing(owned, cards)?,
        })
    };
    let mut holders: Vec<Holder> = asking.filter_map(holder).collect();
    holders.sort_unstable();
    holders
}

/// The resources of the node's cards, renamed ones too.
fn resources(node: &Node) -> BTreeSet<String> {
    let gpus = node.metadata.annotation(NODE_GPUS).and_then(|text| text.parse::<NodeGpus>().ok());
    let named = gpus.unwrap_or_default().0.into_iter().map(|gpu| gpu.resource().to_owned());
    named.chain([MEMORY_RESOURCE, GPU_RESOURCE].map(str::to_owned)).collect()
}

fn asks(owned: &OwnedPod, ours: &BTreeSet<String>) -> bool {
    let spec = &owned.pod.spec;
    let keys = |it: &Container| {
        let resources = it.resources.limits.keys().chain(it.resources.requests.keys());
        resources.cloned().collect::<Vec<_>>()
    };
    let containers = spec.init_containers.iter().chain(&spec.containers);
    containers.flat_map(keys).any(|name| ours.contains(&name))
}

/// What can be done about a pod of ours; `None` when it has none of these cards.
fn standing(owned: &OwnedPod, cards: &Cards) -> Option<Standing> {
    let metadata = &owned.pod.metadata;
    let text = metadata.annotations.get(ALLOCATION);
    let claimed = text.and_then(|text| allocation(ALLOCATION, text).ok());
    let has_some = match (cards, &claimed) {
        (Cards::All, _) => true,
        (Cards::One { .. }, None) => return Some(Standing::Unplaced),
        (Cards::One { .. }, Some(claimed)) => {
            claimed.values().flat_map(|gpus| gpus.keys()).any(|gpu| cards.contains(gpu))
        }
    };
    let is_of = |kind: &str| owned.owners.iter().any(|owner| owner == kind);
    has_some.then(|| {
        if metadata.deletion_timestamp.is_some() {
            Standing::Ending
        } else if metadata.annotations.contains_key(MIRROR) || is_of("Node") {
            Standing::Static
        } else if is_of("DaemonSet") {
            Standing::DaemonSet
        } else {
            Standing::Evictable
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::drain::wish::tests::node;

    fn pod(name: &str, resource: &str, metadata: &Value) -> OwnedPod {
        let mut all = json!({"name": name, "namespace": "ns", "uid": format!("uid-{name}")});
        let more = metadata.as_object().cloned().unwrap_or_default();
        all.as_object_mut().unwrap().extend(more);
        let limits = json!({"limits": {resource: "1"}});
        serde_json::from_value(json!({
            "metadata": all, "spec": {"containers": [{"name": "c", "resources": limits}]},
        }))
        .unwrap()
    }

    fn on(card: &str) -> Value {
        json!({"annotations": {ALLOCATION: json!({"c": {card: 1}}).to_string()}})
    }

    fn held(pods: &[OwnedPod], cards: &Cards) -> Vec<(String, Standing)> {
        let all = holders(&node(&["GPU-0a", "GPU-0b"]), pods, cards);
        all.into_iter().map(|holder| (holder.name, holder.standing)).collect()
    }

    fn first() -> Cards {
        Cards::One { uuid: "GPU-0a".parse().unwrap(), index: 0 }
    }

    #[test]
    fn of_one_card_those_are_meant_whose_annotation_names_it() {
        let pods = [
            pod("a", "nvidia.com/gpu", &on("GPU-0a")),
            pod("b", "nvidia.com/gpu", &on("GPU-0b")),
            pod("c", "aliyun.com/gpu-mem", &on("GPU-0a")),
            pod("d", "cpu", &on("GPU-0a")),
            pod("e", "aliyun.com/gpu-mem", &json!({})),
        ];
        let some = |name: &str, standing| (name.to_owned(), standing);
        assert_eq!(
            held(&pods, &first()),
            [
                some("a", Standing::Evictable),
                some("c", Standing::Evictable),
                some("e", Standing::Unplaced)
            ]
        );
        let all: Vec<String> = held(&pods, &Cards::All).into_iter().map(|(name, _)| name).collect();
        assert_eq!(all, ["a", "b", "c", "e"]);
    }

    #[test]
    fn a_renamed_resource_is_ours_where_the_node_says_so() {
        let mut renamed = node(&["GPU-0a"]);
        let annotations = renamed.metadata.annotations.as_mut().unwrap();
        let text = annotations.get_mut(NODE_GPUS).unwrap();
        *text = text.replace("\"index\"", "\"resource\":\"nvidia.com/gpu.shared\",\"index\"");
        let pods = [pod("a", "nvidia.com/gpu.shared", &json!({}))];
        assert_eq!(holders(&renamed, &pods, &Cards::All).len(), 1);
        assert_eq!(holders(&node(&["GPU-0a"]), &pods, &Cards::All), []);
    }

    #[test]
    fn pods_that_would_come_again_are_left_and_those_that_end_are_waited_for() {
        let owner = |kind: &str| json!({"ownerReferences": [{"kind": kind, "name": "o"}]});
        let standing =
            |metadata: Value| held(&[pod("a", GPU_RESOURCE, &metadata)], &Cards::All)[0].1;
        assert_eq!(standing(owner("DaemonSet")), Standing::DaemonSet);
        assert_eq!(standing(owner("Node")), Standing::Static);
        assert_eq!(standing(json!({"annotations": {MIRROR: "x"}})), Standing::Static);
        assert_eq!(standing(owner("ReplicaSet")), Standing::Evictable);
        let ending = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(standing(ending), Standing::Ending);
    }
}
