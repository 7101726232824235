//! The API server: pods and nodes, one write after the other, and what each write changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use mpshare_api::inventory_annotation::{NodeGpus, node_facts};
use mpshare_api::names::{MEMORY_RESOURCE, NODE_GPUS};
use mpshare_api::pod::{Container, Pod};
use mpshare_core::ledger::NodeFacts;
use serde_json::{Value, json};

/// What a write changed, for those who watch.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// A pod is like this now, or gone.
    Pod(String, Option<Arc<Pod>>),
    /// A node's cards are these now.
    Node(&'static str, NodeFacts),
}

/// The answer to a Binding (facts/kubernetes.md 6.9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// 201
    Bound,
    /// 404: no pod of this name.
    Gone,
    /// 409: deleted, bound, or another UID.
    Conflict,
}

/// All objects.
#[derive(Debug, Default)]
pub(crate) struct Api {
    pub(crate) pods: BTreeMap<String, Arc<Pod>>,
    pub(crate) nodes: BTreeMap<&'static str, NodeFacts>,
    pub(crate) gpus: BTreeMap<&'static str, NodeGpus>,
    pub(crate) changes: Vec<Change>,
    created: usize,
}

/// Whether a pod holds, or may yet hold, anything.
pub(crate) fn is_live(pod: &Pod) -> bool {
    !pod.status.has_ended()
}

impl Api {
    /// Creates a pod whose containers ask for so many units each.
    pub(crate) fn create(&mut self, units: &[u64]) -> String {
        self.created += 1;
        // In the order of their creation, also as text.
        let uid = format!("pod-{:04}", self.created);
        let containers = units.iter().enumerate().map(|(at, units)| {
            let mut container = Container { name: format!("c{at}"), ..Container::default() };
            container.resources.limits =
                [(MEMORY_RESOURCE.to_owned(), json!(units.to_string()))].into();
            container
        });
        let mut pod = Pod::default();
        pod.metadata.uid.clone_from(&uid);
        pod.metadata.name.clone_from(&uid);
        "ns".clone_into(&mut pod.metadata.namespace);
        "Pending".clone_into(&mut pod.status.phase);
        pod.spec.containers = containers.collect();
        self.pods.insert(uid.clone(), Arc::new(pod));
        self.tell(&uid);
        uid
    }

    /// Changes a pod that is there.
    pub(crate) fn change(&mut self, uid: &str, change: impl FnOnce(&mut Pod)) {
        if let Some(pod) = self.pods.get_mut(uid) {
            change(Arc::make_mut(pod));
            self.tell(uid);
        }
    }

    /// Writes annotations of a pod, or takes them away.
    pub(crate) fn annotate(&mut self, uid: &str, changes: BTreeMap<&str, Option<String>>) {
        self.change(uid, |pod| {
            for (key, text) in changes {
                match text {
                    Some(text) => drop(pod.metadata.annotations.insert(key.to_owned(), text)),
                    None => drop(pod.metadata.annotations.remove(key)),
                }
            }
        });
    }

    /// One write that sets node and annotations.
    pub(crate) fn bind(
        &mut self,
        uid: &str,
        node: &str,
        annotations: &BTreeMap<&'static str, String>,
    ) -> Answer {
        let Some(pod) = self.pods.get_mut(uid).map(Arc::make_mut) else { return Answer::Gone };
        if pod.metadata.deletion_timestamp.is_some() || pod.spec.node_name.is_some() {
            return Answer::Conflict;
        }
        pod.spec.node_name = Some(node.to_owned());
        let added = annotations.iter().map(|(key, value)| ((*key).to_owned(), value.clone()));
        pod.metadata.annotations.extend(added);
        self.tell(uid);
        Answer::Bound
    }

    /// A delete with grace: a pod on no node, or one that has ended, is gone at once.
    pub(crate) fn delete(&mut self, uid: &str) {
        let Some(pod) = self.pods.get(uid) else { return };
        if pod.spec.node_name.is_none() || !is_live(pod) {
            return self.remove(uid);
        }
        self.change(uid, |pod| pod.metadata.deletion_timestamp = Some("now".to_owned()));
    }

    /// A delete with grace 0.
    pub(crate) fn remove(&mut self, uid: &str) {
        if self.pods.remove(uid).is_some() {
            self.tell(uid);
        }
    }

    /// What a node publishes of its cards: UUID, units, whether it is ready.
    pub(crate) fn publish(&mut self, node: &'static str, cards: &[(String, u64, bool)]) {
        let cards = cards.iter().enumerate().map(|(index, (uuid, units, is_ready))| {
            json!({
                "uuid": uuid, "index": index, "model": "Tesla T4", "memoryMiB": 16 * 1024,
                "unitMiB": 1024, "units": units,
                "state": if *is_ready { "Ready" } else { "Fault" },
            })
        });
        let text = Value::Array(cards.collect()).to_string();
        self.gpus.extend(text.parse().ok().map(|gpus| (node, gpus)));
        let facts = node_facts(&[(NODE_GPUS.to_owned(), text)].into(), &BTreeMap::new());
        self.nodes.insert(node, facts.clone());
        self.changes.push(Change::Node(node, facts));
    }

    /// The pods on a node that haven't ended.
    pub(crate) fn on<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a Arc<Pod>> {
        self.pods
            .values()
            .filter(move |pod| is_live(pod) && pod.spec.node_name.as_deref() == Some(node))
    }

    fn tell(&mut self, uid: &str) {
        let now = self.pods.get(uid).cloned();
        self.changes.push(Change::Pod(uid.to_owned(), now));
    }
}
