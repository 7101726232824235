//! The node's pods, as the API has them now: what those that ask for units ask for, and what all of
//! them are called.

use std::collections::BTreeMap;

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Pod as K8sPod;
use kube::api::{ApiResource, Object};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use mpshare_api::bound_pods::PodEnding;
use mpshare_api::pod::{Pod, PodMetadata, PodSpec, PodStatus};

use crate::handoff::NodePod;

/// The annotation of the API's image of a static pod: the UID that the kubelet knows it by
/// (facts/kubernetes.md 10).
pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";

/// The pods that are bound to the node and haven't ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NodePods {
    /// Those that ask for units, in the order of their creation.
    pub(crate) asking: Vec<NodePod>,
    /// All of them, by the UIDs that the kubelet knows them by.
    pub(crate) names: BTreeMap<String, PodName>,
}

/// What a pod is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodName {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// A pod with the fields that count.
type SlimPod = Object<PodSpec, PodStatus>;

/// Watches the pods that are bound to a node and haven't ended: all of them whenever one changes.
pub(crate) fn on(
    client: &Client,
    node: &str,
) -> impl Stream<Item = Result<NodePods, watcher::Error>> + Send + use<> {
    let pods = Api::<SlimPod>::all_with(client.clone(), &ApiResource::erase::<K8sPod>(&()));
    let fields = format!("spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed");
    let events = watcher(pods, watcher::Config::default().fields(&fields));
    let known = Known::default();
    let seen = events.scan(known, |known, event| {
        std::future::ready(Some(event.map(|event| known.take(event)).transpose()))
    });
    seen.filter_map(std::future::ready)
}

/// The pods by UID.
#[derive(Debug, Default)]
struct Known {
    pods: BTreeMap<String, Seen>,
    /// Those of a list that isn't complete yet.
    listed: BTreeMap<String, Seen>,
}

/// What counts of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    kubelet_uid: String,
    name: PodName,
    /// `None` where it asks for no units.
    asking: Option<NodePod>,
}

impl Known {
    /// All pods once the event is taken in; `None` where nothing of interest has changed.
    fn take(&mut self, event: Event<SlimPod>) -> Option<NodePods> {
        match event {
            Event::Init => {
                self.listed.clear();
                return None;
            }
            Event::InitApply(object) => {
                self.listed.extend([read(object)]);
                return None;
            }
            Event::InitDone => self.pods = std::mem::take(&mut self.listed),
            Event::Apply(object) => {
                let (uid, seen) = read(object);
                if self.pods.insert(uid, seen.clone()) == Some(seen) {
                    return None;
                }
            }
            Event::Delete(object) => {
                self.pods.remove(&object.metadata.uid.unwrap_or_default())?;
            }
        }
        let asking = self.pods.values().filter_map(|seen| seen.asking.clone());
        let mut asking: Vec<NodePod> = asking.collect();
        asking.sort_by(|one, other| one.created.cmp(&other.created));
        let names = self.pods.values().map(|seen| (seen.kubelet_uid.clone(), seen.name.clone()));
        Some(NodePods { asking, names: names.collect() })
    }
}

/// UID, and what counts of the pod.
fn read(object: SlimPod) -> (String, Seen) {
    let ending = ending(&object);
    let metadata = object.metadata;
    let uid = metadata.uid.unwrap_or_default();
    let created = metadata.creation_timestamp.map(|time| time.0.to_string()).unwrap_or_default();
    let pod = Pod {
        metadata: PodMetadata {
            name: metadata.name.unwrap_or_default(),
            namespace: metadata.namespace.unwrap_or_default(),
            uid: uid.clone(),
            labels: metadata.labels.unwrap_or_default(),
            annotations: metadata.annotations.unwrap_or_default(),
            deletion_timestamp: metadata.deletion_timestamp.map(|time| time.0.to_string()),
        },
        spec: object.spec,
        status: object.status.unwrap_or_default(),
    };
    let seen = Seen {
        kubelet_uid: kubelet_uid(&pod).to_owned(),
        asking: NodePod::of(&pod, created).map(|pod| NodePod { ending, ..pod }),
        name: PodName { namespace: pod.metadata.namespace, name: pod.metadata.name },
    };
    (uid, seen)
}

/// Whether the kubelet is ending a pod. A static one it ends when its file is gone, whatever becomes
/// of the image of it that the API has.
fn ending(object: &SlimPod) -> Option<PodEnding> {
    let metadata = &object.metadata;
    let is_mirror = metadata.annotations.as_ref().is_some_and(|all| all.contains_key(MIRROR));
    metadata.deletion_timestamp.as_ref().filter(|_| !is_mirror)?;
    let seconds = metadata.deletion_grace_period_seconds.unwrap_or(0);
    Some(PodEnding { grace_seconds: u64::try_from(seconds).unwrap_or(0) })
}

/// The UID that the kubelet knows a pod by.
pub(crate) fn kubelet_uid(pod: &Pod) -> &str {
    pod.metadata.annotations.get(MIRROR).unwrap_or(&pod.metadata.uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(uid: &str, created: &str, units: u64) -> SlimPod {
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"uid": uid, "name": uid, "namespace": "ns", "creationTimestamp": created},
            "spec": {"nodeName": "here", "containers": [
                {"name": "c", "resources": {"limits": {"nvidia.com/gpu": units.to_string()}}},
            ]},
        }))
        .unwrap()
    }

    fn uids(pods: Option<NodePods>) -> Option<Vec<String>> {
        Some(pods?.asking.into_iter().map(|pod| pod.facts.uid.0).collect())
    }

    const EARLY: &str = "2026-01-01T00:00:00Z";
    const LATE: &str = "2026-01-01T00:00:01Z";

    #[test]
    fn pods_are_told_in_the_order_of_creation_and_only_when_something_counts() {
        let mut known = Known::default();
        assert_eq!(known.take(Event::Init), None);
        assert_eq!(known.take(Event::InitApply(object("a", LATE, 1))), None);
        assert_eq!(known.take(Event::InitApply(object("none", EARLY, 0))), None);
        assert_eq!(uids(known.take(Event::InitDone)), Some(vec!["a".to_owned()]));
        let both = known.take(Event::Apply(object("b", EARLY, 1)));
        assert_eq!(uids(both), Some(vec!["b".to_owned(), "a".to_owned()]));
        assert_eq!(known.take(Event::Apply(object("b", EARLY, 1))), None, "nothing is new");
        assert_eq!(known.take(Event::Apply(object("none", EARLY, 0))), None, "nothing is new");
        let left = known.take(Event::Delete(object("a", LATE, 1)));
        assert_eq!(uids(left), Some(vec!["b".to_owned()]));
        assert_eq!(known.take(Event::Init), None);
        assert_eq!(uids(known.take(Event::InitDone)), Some(vec![]), "the list is all there is");
    }

    #[test]
    fn a_pod_that_is_being_deleted_has_its_grace_period_and_the_image_of_a_static_one_has_none() {
        let mut known = Known::default();
        let mut deleted = object("a", EARLY, 1);
        deleted.metadata.deletion_timestamp = deleted.metadata.creation_timestamp.clone();
        deleted.metadata.deletion_grace_period_seconds = Some(30);
        known.take(Event::Apply(object("b", LATE, 1)));
        let mut ending = |pod: SlimPod| {
            let pods = known.take(Event::Apply(pod)).unwrap().asking;
            pods.into_iter().map(|pod| pod.ending.map(|it| it.grace_seconds)).collect::<Vec<_>>()
        };
        assert_eq!(ending(deleted.clone()), [Some(30), None]);
        deleted.metadata.deletion_grace_period_seconds = Some(0);
        assert_eq!(ending(deleted.clone()), [Some(0), None]);
        deleted.metadata.annotations = Some([(MIRROR.to_owned(), "kubelet".to_owned())].into());
        assert_eq!(ending(deleted), [None, None]);
    }

    #[test]
    fn the_names_of_all_pods_are_known_by_the_uids_of_the_kubelet() {
        let mut known = Known::default();
        let mut mirror = object("api", EARLY, 0);
        mirror.metadata.annotations = Some([(MIRROR.to_owned(), "kubelet".to_owned())].into());
        known.take(Event::Apply(mirror.clone()));
        let names = known.take(Event::Apply(object("b", LATE, 1))).unwrap().names;
        let named = |uid: &str| names.get(uid).map(|name| name.name.as_str());
        assert_eq!([named("kubelet"), named("api"), named("b")], [Some("api"), None, Some("b")]);
        assert_eq!(known.take(Event::Delete(mirror)).unwrap().names.len(), 1);
    }
}
