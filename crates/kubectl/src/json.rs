//! The report as programs read it. Amounts are units of their node (`unitMiB` each); the cluster's
//! own are in `unitMiB` of the top level.

use serde::Serialize;

use crate::placement::Place;
use crate::report::{Card, NodeReport, PodReport, Report, percent};
use crate::text::unit_label;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Cluster<'a> {
    unit: String,
    #[serde(rename = "unitMiB")]
    unit_mib: Option<u64>,
    allocated: u64,
    total: u64,
    percent: u128,
    nodes: Vec<Node<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Node<'a> {
    name: &'a str,
    address: Option<&'a str>,
    #[serde(rename = "unitMiB")]
    unit_mib: u64,
    allocated: u64,
    pending: u64,
    total: u64,
    problems: &'a [String],
    gpus: Vec<Gpu<'a>>,
    pods: Vec<Pod<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Gpu<'a> {
    index: u32,
    uuid: Option<&'a str>,
    model: Option<&'a str>,
    #[serde(rename = "memoryMiB")]
    memory_mib: Option<u64>,
    allocated: u64,
    total: u64,
    #[serde(rename = "usedMiB")]
    used_mib: Option<u64>,
    #[serde(rename = "outsideMiB")]
    outside_mib: u64,
    state: Option<&'a str>,
    reason: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Pod<'a> {
    namespace: &'a str,
    name: &'a str,
    gpus: Vec<Share>,
    pending: u64,
    reason: Option<&'a str>,
}

#[derive(Serialize)]
struct Share {
    index: u32,
    units: u64,
}

/// The report as one JSON object.
pub(crate) fn json(report: &Report) -> Result<String, serde_json::Error> {
    let (allocated, total) = (report.allocated(), report.total());
    let cluster = Cluster {
        unit: unit_label(report),
        unit_mib: report.unit().map(mpshare_core::Memory::mib),
        allocated,
        total,
        percent: percent(allocated, total),
        nodes: report.nodes.iter().map(node).collect(),
    };
    serde_json::to_string_pretty(&cluster).map(|text| text + "\n")
}

fn node(node: &NodeReport) -> Node<'_> {
    Node {
        name: &node.name,
        address: node.address.as_deref(),
        unit_mib: node.unit.mib(),
        allocated: node.allocated(),
        pending: node.pending(),
        total: node.total(),
        problems: &node.problems,
        gpus: node.cards.iter().map(|card| gpu(node, card)).collect(),
        pods: node.pods.iter().map(pod).collect(),
    }
}

fn gpu<'a>(node: &NodeReport, card: &'a Card) -> Gpu<'a> {
    Gpu {
        index: card.index,
        uuid: card.uuid.as_deref(),
        model: card.model.as_deref(),
        memory_mib: card.memory.map(mpshare_core::Memory::mib),
        allocated: node.allocated_on(card.index),
        total: card.total,
        used_mib: card.used.map(mpshare_core::Memory::mib),
        outside_mib: card.outside.mib(),
        state: card.state.as_deref(),
        reason: card.reason.as_deref(),
    }
}

fn pod(pod: &PodReport) -> Pod<'_> {
    let (gpus, reason) = match &pod.place {
        Place::On(shares) => {
            let share = |(index, units): (&u32, &u64)| Share { index: *index, units: *units };
            (shares.iter().map(share).collect(), None)
        }
        Place::Pending { reason, .. } => (Vec::new(), Some(reason.as_str())),
    };
    Pod { namespace: &pod.namespace, name: &pod.name, gpus, pending: pod.pending(), reason }
}
