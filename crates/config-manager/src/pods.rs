//! The node's pods that ask for units, as the API has them now.

use std::collections::BTreeMap;

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Pod as K8sPod;
use kube::api::{ApiResource, Object};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use mpshare_api::pod::{Pod, PodMetadata, PodSpec, PodStatus};

use crate::handoff::NodePod;

/// A pod with the fields that count.
type SlimPod = Object<PodSpec, PodStatus>;

/// Watches the pods that are bound to a node and haven't ended: all of them whenever one changes,
/// in the order of their creation.
pub(crate) fn on(
    client: &Client,
    node: &str,
) -> impl Stream<Item = Result<Vec<NodePod>, watcher::Error>> + Send + use<> {
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
    pods: BTreeMap<String, NodePod>,
    /// Those of a list that isn't complete yet.
    listed: BTreeMap<String, NodePod>,
}

impl Known {
    /// All pods once the event is taken in; `None` where nothing of interest has changed.
    fn take(&mut self, event: Event<SlimPod>) -> Option<Vec<NodePod>> {
        match event {
            Event::Init => {
                self.listed.clear();
                return None;
            }
            Event::InitApply(object) => {
                let (uid, pod) = read(object);
                self.listed.extend(pod.map(|pod| (uid, pod)));
                return None;
            }
            Event::InitDone => self.pods = std::mem::take(&mut self.listed),
            Event::Apply(object) => {
                let (uid, pod) = read(object);
                let before = match pod.clone() {
                    Some(pod) => self.pods.insert(uid, pod),
                    None => self.pods.remove(&uid),
                };
                if before == pod {
                    return None;
                }
            }
            Event::Delete(object) => {
                self.pods.remove(&object.metadata.uid.unwrap_or_default())?;
            }
        }
        let mut all: Vec<NodePod> = self.pods.values().cloned().collect();
        all.sort_by(|one, other| one.created.cmp(&other.created));
        Some(all)
    }
}

/// UID, and the pod if it asks for units.
fn read(object: SlimPod) -> (String, Option<NodePod>) {
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
    (uid, NodePod::of(&pod, created))
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

    fn uids(pods: Option<Vec<NodePod>>) -> Option<Vec<String>> {
        Some(pods?.into_iter().map(|pod| pod.facts.uid.0).collect())
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
        assert_eq!(known.take(Event::Delete(object("none", EARLY, 0))), None);
        let left = known.take(Event::Delete(object("a", LATE, 1)));
        assert_eq!(uids(left), Some(vec!["b".to_owned()]));
        assert_eq!(known.take(Event::Init), None);
        assert_eq!(uids(known.take(Event::InitDone)), Some(vec![]), "the list is all there is");
    }
}
