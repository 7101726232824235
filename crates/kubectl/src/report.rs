//! What a cluster's nodes offer and their pods have, ready to be written in any form.

use std::collections::BTreeMap;

use mpshare_api::inventory_annotation::{NodeGpu, NodeGpus};
use mpshare_api::names::{CONDITION, GPU_COUNT, MEMORY_RESOURCE, NODE_GPUS};
use mpshare_api::pod::Pod;
use mpshare_core::Memory;

use crate::objects::Node;
use crate::placement::{Place, place};
use crate::quantity::units;

/// More cards than any machine has: an index beyond makes no column.
const MAX_GPUS: u32 = 256;

/// All nodes that share GPU memory, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) nodes: Vec<NodeReport>,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeReport {
    pub(crate) name: String,
    /// Its internal IP address.
    pub(crate) address: Option<String>,
    /// The size of its units.
    pub(crate) unit: Memory,
    /// By index.
    pub(crate) cards: Vec<Card>,
    /// By namespace and name.
    pub(crate) pods: Vec<PodReport>,
    /// What is wrong with the node as a whole.
    pub(crate) problems: Vec<String>,
}

/// One card.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Card {
    pub(crate) index: u32,
    /// How many units it has.
    pub(crate) total: u64,
    /// Identity, where the node tells it; so with all that follow.
    pub(crate) uuid: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) memory: Option<Memory>,
    pub(crate) used: Option<Memory>,
    /// What of it processes without a share use.
    pub(crate) outside: Memory,
    pub(crate) state: Option<String>,
    pub(crate) reason: Option<String>,
}

/// A pod that has, or waits for, units of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodReport {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) place: Place,
}

impl PodReport {
    /// Its units on a card.
    pub(crate) fn on(&self, card: u32) -> u64 {
        match &self.place {
            Place::On(shares) => shares.get(&card).copied().unwrap_or(0),
            Place::Pending { .. } => 0,
        }
    }

    /// Its units of which nobody knows where they are.
    pub(crate) const fn pending(&self) -> u64 {
        match &self.place {
            Place::On(_) => 0,
            Place::Pending { units, .. } => *units,
        }
    }
}

impl NodeReport {
    /// The units that pods have on a card.
    pub(crate) fn allocated_on(&self, card: u32) -> u64 {
        sum(self.pods.iter().map(|pod| pod.on(card)))
    }

    /// The units of pods that are on no known card.
    pub(crate) fn pending(&self) -> u64 {
        sum(self.pods.iter().map(PodReport::pending))
    }

    /// Whether there are such pods.
    pub(crate) fn has_pending(&self) -> bool {
        self.pending() > 0
    }

    /// The units of all pods.
    pub(crate) fn allocated(&self) -> u64 {
        let placed = sum(self.cards.iter().map(|card| self.allocated_on(card.index)));
        placed.saturating_add(self.pending())
    }

    /// The units of all cards.
    pub(crate) fn total(&self) -> u64 {
        sum(self.cards.iter().map(|card| card.total))
    }

    /// The card of this index.
    pub(crate) fn card(&self, index: u32) -> Option<&Card> {
        self.cards.iter().find(|card| card.index == index)
    }

    /// How many columns its cards need: their names are their indices.
    pub(crate) fn columns(&self) -> u32 {
        self.cards.last().map_or(0, |card| card.index.saturating_add(1))
    }
}

impl Report {
    /// The unit that amounts of all nodes are written in: their own where they agree, else 1 MiB.
    pub(crate) fn unit(&self) -> Option<Memory> {
        let first = self.nodes.first()?.unit;
        let agree = self.nodes.iter().all(|node| node.unit == first);
        Some(if agree { first } else { Memory::from_mib(1) })
    }

    /// A node's units in the unit of the report.
    pub(crate) fn amount(&self, node: &NodeReport, units: u64) -> u64 {
        if self.unit() == Some(node.unit) { units } else { node.unit.times(units).mib() }
    }

    /// What all pods have, in the unit of the report.
    pub(crate) fn allocated(&self) -> u64 {
        sum(self.nodes.iter().map(|node| self.amount(node, node.allocated())))
    }

    /// What all cards have, in the unit of the report.
    pub(crate) fn total(&self) -> u64 {
        sum(self.nodes.iter().map(|node| self.amount(node, node.total())))
    }
}

/// Whole percent, the rest dropped; nothing of nothing is 0 %.
pub(crate) fn percent(part: u64, whole: u64) -> u128 {
    (u128::from(part) * 100).checked_div(u128::from(whole)).unwrap_or(0)
}

/// What these nodes and pods come to. Nodes without GPU memory to share are left out.
pub(crate) fn report(nodes: &[Node], pods: &[Pod]) -> Report {
    let mut on: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !pod.status.has_ended()) {
        if let Some(node) = pod.spec.node_name.as_deref() {
            on.entry(node).or_default().push(pod);
        }
    }
    let pods_on = |node: &Node| on.get(node.metadata.name.as_str()).map_or(&[][..], Vec::as_slice);
    let mut nodes: Vec<NodeReport> =
        nodes.iter().filter_map(|node| node_report(node, pods_on(node))).collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    Report { nodes }
}

fn node_report(node: &Node, pods: &[&Pod]) -> Option<NodeReport> {
    let mut problems = Vec::new();
    let (unit, cards) = cards(node, &mut problems)?;
    problems.extend(condition(node));
    let mut pods: Vec<PodReport> = pods
        .iter()
        .filter_map(|pod| {
            let Pod { metadata, .. } = pod;
            let place = place(pod, &cards)?;
            Some(PodReport {
                namespace: metadata.namespace.clone(),
                name: metadata.name.clone(),
                place,
            })
        })
        .collect();
    pods.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    Some(NodeReport {
        name: node.metadata.name.clone(),
        address: address(node),
        unit,
        cards,
        pods,
        problems,
    })
}

fn address(node: &Node) -> Option<String> {
    let mut addresses = node.status.addresses.iter().flatten();
    let internal = addresses.find(|address| address.kind == "InternalIP")?;
    Some(internal.address.clone())
}

/// What our node says is wrong.
fn condition(node: &Node) -> Option<String> {
    let mut conditions = node.status.conditions.iter().flatten();
    let ours = conditions.find(|condition| condition.kind == CONDITION)?;
    if ours.status == "True" {
        return None;
    }
    ours.message.clone().filter(|message| !message.is_empty())
}

/// A node's unit and its cards: as the node names them, else as its capacity implies.
fn cards(node: &Node, problems: &mut Vec<String>) -> Option<(Memory, Vec<Card>)> {
    let Some(text) = node.metadata.annotation(NODE_GPUS) else {
        return implied_cards(node, problems);
    };
    let named = text.parse::<NodeGpus>().map_err(|error| error.to_string());
    match named.and_then(|gpus| named_cards(&gpus)) {
        Ok(named) => named,
        Err(problem) => {
            problems.push(format!("annotation `{NODE_GPUS}` doesn't count: {problem}"));
            implied_cards(node, problems)
        }
    }
}

/// The cards that are shared by memory; `None` where the node shares its cards otherwise.
fn named_cards(gpus: &NodeGpus) -> Result<Option<(Memory, Vec<Card>)>, String> {
    let mut ours = gpus.0.iter().filter(|gpu| gpu.resource() == MEMORY_RESOURCE).peekable();
    let Some(unit) = ours.peek().map(|gpu| gpu.unit_mib) else { return Ok(None) };
    let mut cards = Vec::new();
    for gpu in ours {
        if gpu.unit_mib != unit {
            // A pod asks for units of the resource, whichever card it gets.
            return Err(format!("units of {unit} MiB and of {} MiB", gpu.unit_mib));
        }
        if gpu.index >= MAX_GPUS {
            return Err(format!("a GPU with the index {}", gpu.index));
        }
        cards.push(card(gpu));
    }
    Ok(Some((Memory::from_mib(unit), cards)))
}

fn card(gpu: &NodeGpu) -> Card {
    Card {
        index: gpu.index,
        total: gpu.units,
        uuid: Some(gpu.uuid.clone()),
        model: Some(gpu.model.clone()).filter(|model| !model.is_empty()),
        memory: Some(Memory::from_mib(gpu.memory_mib)),
        used: gpu.used_mib.map(Memory::from_mib),
        outside: Memory::from_mib(gpu.outside_mib.unwrap_or(0)),
        state: Some(gpu.state.clone()).filter(|state| !state.is_empty()),
        reason: gpu.reason.clone(),
    }
}

/// The cards of Alibaba's own plugin: it tells the sum and the number of cards, and takes all
/// cards to be alike (facts/aliyun-gpushare.md 1.1).
fn implied_cards(node: &Node, problems: &mut Vec<String>) -> Option<(Memory, Vec<Card>)> {
    let capacity =
        amount(node.status.capacity.as_ref(), MEMORY_RESOURCE).filter(|units| *units > 0)?;
    let told = amount(node.status.capacity.as_ref(), GPU_COUNT);
    let count = told.or_else(|| node.metadata.annotation(GPU_COUNT)?.parse().ok());
    let count = count.filter(|count| (1..=u64::from(MAX_GPUS)).contains(count));
    let count = count.and_then(|count| u32::try_from(count).ok()).unwrap_or_else(|| {
        problems.push(format!("its number of GPUs, `{GPU_COUNT}`, isn't known: taken for 1"));
        1
    });
    let allocatable = amount(node.status.allocatable.as_ref(), MEMORY_RESOURCE);
    if let Some(allocatable) = allocatable.filter(|allocatable| *allocatable < capacity) {
        problems.push(format!("only {allocatable} of {capacity} units can be allocated"));
    }
    let total = capacity.checked_div(u64::from(count)).unwrap_or(0);
    let cards = (0..count).map(|index| Card { index, total, ..Card::default() });
    Some((implied_unit(total), cards.collect()))
}

fn amount(resources: Option<&BTreeMap<String, serde_json::Value>>, name: &str) -> Option<u64> {
    resources?.get(name).map(units)
}

/// No card has 1 TiB or more, and none that is shared less than 1 GiB: so many units are MiB.
/// Other tools draw the line at 100, and call the 140 GiB of an H200 MiB
/// (facts/aliyun-gpushare.md 4.1).
const fn implied_unit(units_of_a_card: u64) -> Memory {
    Memory::from_mib(if units_of_a_card >= 1024 { 1 } else { 1024 })
}

fn sum(amounts: impl Iterator<Item = u64>) -> u64 {
    amounts.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests;
