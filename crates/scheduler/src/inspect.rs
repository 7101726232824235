//! `inspect`: the ledger, in the form that Aliyun's tools read.

use mpshare_api::extender::{InspectedGpu, InspectedNode, InspectedPod, Inspection};
use mpshare_core::Memory;
use mpshare_core::ledger::{CardUse, Ledger, NodeName, NodeUse, PodUid};

/// All nodes with GPUs, or with pods that ask for some.
pub(crate) fn all(ledger: &Ledger) -> Inspection {
    let is_shown = |usage: &NodeUse| {
        !usage.unplaced.is_empty() || !matches!(&usage.cards, Ok(cards) if cards.is_empty())
    };
    let nodes = ledger.nodes().filter(|(_, usage)| is_shown(usage));
    let nodes = nodes.map(|(name, usage)| node(ledger, name, usage)).collect();
    Inspection { nodes, error: String::new() }
}

/// One node.
pub(crate) fn one(ledger: &Ledger, name: &str) -> Inspection {
    let name = NodeName(name.to_owned());
    match ledger.node(&name) {
        Some(usage) => Inspection { nodes: vec![node(ledger, &name, usage)], error: String::new() },
        None => Inspection { nodes: Vec::new(), error: format!("there is no node `{name}`") },
    }
}

fn node(ledger: &Ledger, name: &NodeName, usage: &NodeUse) -> InspectedNode {
    let cards = usage.cards.as_ref();
    let devs: Vec<InspectedGpu> =
        cards.into_iter().flatten().map(|card| gpu(ledger, card)).collect();
    let unplaced = usage.unplaced.iter().map(|uid| {
        let units = ledger.pod(uid).map_or(0, |pod| pod.demand.peak());
        pod(ledger, uid, units)
    });
    InspectedNode {
        name: name.to_string(),
        total: sum(devs.iter().map(|gpu| gpu.total)),
        used: sum(devs.iter().map(|gpu| gpu.used)),
        unplaced: unplaced.collect(),
        problem: usage.cards.as_ref().err().cloned(),
        devs,
    }
}

fn sum(units: impl Iterator<Item = u64>) -> u64 {
    units.fold(0, u64::saturating_add)
}

fn gpu(ledger: &Ledger, usage: &CardUse) -> InspectedGpu {
    let card = &usage.card;
    let units = |memory: Memory| memory.pieces_of(card.unit);
    InspectedGpu {
        id: card.index,
        uuid: card.uuid.to_string(),
        total: card.units,
        used: units(usage.placed),
        unit_mib: card.unit.mib(),
        state: card.not_ready.clone(),
        pods: usage.pods.iter().map(|(uid, units)| pod(ledger, uid, *units)).collect(),
    }
}

fn pod(ledger: &Ledger, uid: &PodUid, used: u64) -> InspectedPod {
    let known = ledger.pod(uid);
    InspectedPod {
        name: known.map_or_else(|| uid.to_string(), |pod| pod.name.clone()),
        namespace: known.map(|pod| pod.namespace.clone()).unwrap_or_default(),
        used,
    }
}
