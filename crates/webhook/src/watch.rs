//! Feeds the fleet from a watch of nodes, by their metadata alone and in pages, so that no moment
//! needs the memory of a whole cluster.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use mpshare_api::inventory_annotation::fleet_node;
use mpshare_core::ledger::NodeName;
use mpshare_telemetry::{Failures, sentence};

use crate::webhook::Webhook;

/// How many objects are in a page of a list.
const PAGE: u32 = 500;

type NodeMeta = PartialObjectMeta<Node>;

/// Keeps the fleet up to date, without end. That the watch fails is said once.
pub(crate) async fn run(client: &Client, webhook: &Webhook) {
    let nodes = Api::<NodeMeta>::all(client.clone());
    let config = watcher::Config::default().page_size(PAGE);
    let mut events = std::pin::pin!(watcher(nodes, config).default_backoff());
    let mut failures = Failures::new("can't watch nodes; what was known stays in force, retrying");
    let mut listed = BTreeSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                failures.over();
                take(webhook, &mut listed, event);
            }
            Err(error) => failures.failed(&sentence(&error)),
        }
    }
}

fn take(webhook: &Webhook, listed: &mut BTreeSet<NodeName>, event: Event<NodeMeta>) {
    match event {
        Event::Init => listed.clear(),
        Event::InitApply(node) => drop(listed.insert(apply(webhook, node))),
        Event::InitDone => {
            webhook.fleet().keep(listed);
            listed.clear();
            webhook.nodes_listed.store(true, Ordering::Release);
        }
        Event::Apply(node) => drop(apply(webhook, node)),
        Event::Delete(node) => {
            webhook.fleet().remove(&NodeName(node.metadata.name.unwrap_or_default()));
        }
    }
}

fn apply(webhook: &Webhook, node: NodeMeta) -> NodeName {
    let metadata = node.metadata;
    let name = NodeName(metadata.name.unwrap_or_default());
    let known =
        fleet_node(&metadata.annotations.unwrap_or_default(), &metadata.labels.unwrap_or_default());
    webhook.fleet().set(&name, known);
    name
}
