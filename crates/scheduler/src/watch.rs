//! Feeds the ledger from two watches: nodes by their metadata alone, pods by the few fields that
//! count. Both lists come in pages, so that no moment needs the memory of a whole cluster.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{Node, Pod as K8sPod};
use kube::api::{ApiResource, Object};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use mpshare_api::inventory_annotation::node_facts;
use mpshare_api::pod::{Pod, PodMetadata, PodSpec, PodStatus};
use mpshare_core::ledger::{NodeName, PodUid};
use mpshare_telemetry::Failures;

use crate::extender::Extender;

/// Pods that have ended hold nothing, and those without a node not yet.
const HOLDING: &str = "status.phase!=Succeeded,status.phase!=Failed,spec.nodeName!=";

/// How often binds are looked at of which nobody knows how they ended.
const EXPIRE_EVERY: Duration = Duration::from_secs(1);

/// How many objects are in a page of a list.
const PAGE: u32 = 500;

/// A pod with the fields that count.
pub(crate) type SlimPod = Object<PodSpec, PodStatus>;

/// Pods of all namespaces, or of one, seen by the fields that count.
pub(crate) fn slim_pods(client: &Client, namespace: Option<&str>) -> Api<SlimPod> {
    let resource = ApiResource::erase::<K8sPod>(&());
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// What a pod's object says.
pub(crate) fn pod_of(object: SlimPod) -> Pod {
    let metadata = object.metadata;
    Pod {
        metadata: PodMetadata {
            name: metadata.name.unwrap_or_default(),
            namespace: metadata.namespace.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            labels: metadata.labels.unwrap_or_default(),
            annotations: metadata.annotations.unwrap_or_default(),
            deletion_timestamp: metadata.deletion_timestamp.map(|time| time.0.to_string()),
        },
        spec: object.spec,
        status: object.status.unwrap_or_default(),
    }
}

/// Keeps the ledger up to date, without end.
pub(crate) async fn run(extender: &Extender) {
    let config = watcher::Config::default().page_size(PAGE);
    let pods = slim_pods(&extender.client, None);
    let pods = steady("pods", watcher(pods, config.clone().fields(HOLDING)));
    let nodes = Api::<PartialObjectMeta<Node>>::all(extender.client.clone());
    let nodes = steady("nodes", watcher(nodes, config));
    tokio::join!(take_pods(extender, pods), take_nodes(extender, nodes), expire(extender));
}

/// Gives back the room of binds that can't take effect any more: also where nobody is bound,
/// because that room is missing.
async fn expire(extender: &Extender) {
    loop {
        tokio::time::sleep(EXPIRE_EVERY).await;
        extender.ledger().expire(extender.now());
    }
}

/// The events of a watch, which is repeated with back-off; that it fails is said once.
fn steady<T: Debug + Send + 'static>(
    what: &'static str,
    events: impl Stream<Item = Result<Event<T>, watcher::Error>> + Send,
) -> impl Stream<Item = Event<T>> {
    let mut failures = Failures::new("can't watch; what was known stays in force, retrying");
    events.default_backoff().filter_map(move |event| {
        let event = match event {
            Ok(event) => {
                failures.over();
                Some(event)
            }
            Err(error) => {
                failures.failed(&format!("{what}: {}", mpshare_telemetry::sentence(&error)));
                None
            }
        };
        std::future::ready(event)
    })
}

async fn take_pods(extender: &Extender, events: impl Stream<Item = Event<SlimPod>>) {
    let mut events = std::pin::pin!(events);
    let mut listed = BTreeSet::new();
    let mut ended_before = BTreeSet::new();
    while let Some(event) = events.next().await {
        match event {
            Event::Init => {
                listed.clear();
                ended_before = extender.ledger().unseen();
            }
            Event::InitApply(object) => listed.extend(apply(extender, object)),
            Event::InitDone => {
                extender.ledger().keep_pods(&listed, &ended_before, extender.now());
                if !extender.pods_listed.load(Ordering::Acquire) {
                    extender.ledger().doubt_unconfirmed();
                }
                listed.clear();
                extender.pods_listed.store(true, Ordering::Release);
            }
            Event::Apply(object) => drop(apply(extender, object)),
            Event::Delete(object) => {
                extender.ledger().remove_pod(&PodUid(object.metadata.uid.unwrap_or_default()));
            }
        }
    }
}

/// Takes a pod in and returns its UID when it counts.
fn apply(extender: &Extender, object: SlimPod) -> Option<PodUid> {
    let pod = pod_of(object);
    let Some(facts) = pod.facts() else {
        extender.ledger().remove_pod(&PodUid(pod.metadata.uid));
        return None;
    };
    let uid = facts.uid.clone();
    extender.ledger().set_pod(facts);
    Some(uid)
}

async fn take_nodes(
    extender: &Extender,
    events: impl Stream<Item = Event<PartialObjectMeta<Node>>>,
) {
    let mut events = std::pin::pin!(events);
    let mut listed = BTreeSet::new();
    while let Some(event) = events.next().await {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(node) => {
                listed.extend(node.metadata.name.clone().map(NodeName));
                apply_node(extender, node);
            }
            Event::InitDone => {
                extender.ledger().keep_nodes(&listed);
                listed.clear();
                extender.nodes_listed.store(true, Ordering::Release);
            }
            Event::Apply(node) => apply_node(extender, node),
            Event::Delete(node) => {
                let name = NodeName(node.metadata.name.unwrap_or_default());
                extender.ledger().remove_node(&name);
            }
        }
    }
}

fn apply_node(extender: &Extender, node: PartialObjectMeta<Node>) {
    let metadata = node.metadata;
    let name = NodeName(metadata.name.unwrap_or_default());
    let facts =
        node_facts(&metadata.annotations.unwrap_or_default(), &metadata.labels.unwrap_or_default());
    if let Err(problem) = &facts.cards {
        tracing::warn!(node = %name, problem, "the node's GPUs aren't known");
    }
    extender.ledger().set_node(&name, facts);
}
