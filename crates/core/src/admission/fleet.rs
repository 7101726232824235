//! The cards of the cluster's nodes, as far as admission has to know them.

use std::collections::{BTreeMap, BTreeSet};

use super::Subject;
use crate::ledger::NodeName;
use crate::{DriverVersion, Memory, ResourceName, ThreadPercent, VersionProfile};

/// All nodes with cards.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fleet {
    nodes: BTreeMap<NodeName, FleetNode>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FleetNode {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its cards, whatever state they are in.
    pub cards: Vec<FleetCard>,
}

/// A card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetCard {
    /// The resource of its units.
    pub resource: ResourceName,
    /// The memory of one unit.
    pub unit: Memory,
    /// The threads of one unit.
    pub percent: ThreadPercent,
    /// How many units there are; one is the whole card, without MPS.
    pub units: u64,
    /// The node's driver.
    pub driver: Option<DriverVersion>,
}

impl FleetCard {
    /// Whether its containers are clients of an MPS daemon.
    pub const fn is_shared(&self) -> bool {
        self.units > 1
    }

    /// Whether the MPS of its driver serves one user at a time; unknown drivers are taken for new
    /// ones.
    fn serves_one_user(&self) -> bool {
        let profile = self.driver.as_ref().map(VersionProfile::of);
        self.is_shared() && profile.is_some_and(|it| it.is_none_or(|it| !it.has_multiuser_server()))
    }
}

/// The cards of one resource to which a pod may come.
#[derive(Debug)]
pub(super) struct Candidates<'a> {
    cards: Vec<(&'a NodeName, &'a FleetCard)>,
}

impl Fleet {
    /// Takes in what a node says. One without cards is forgotten.
    pub fn set(&mut self, name: &NodeName, node: FleetNode) {
        if node.cards.is_empty() {
            self.remove(name);
        } else {
            self.nodes.insert(name.clone(), node);
        }
    }

    /// Forgets a node.
    pub fn remove(&mut self, name: &NodeName) {
        self.nodes.remove(name);
    }

    /// Forgets all nodes but these.
    pub fn keep(&mut self, known: &BTreeSet<NodeName>) {
        self.nodes.retain(|name, _| known.contains(name));
    }

    pub(super) fn candidates<'a>(
        &'a self,
        subject: &Subject,
        resource: &ResourceName,
    ) -> Candidates<'a> {
        let nodes = self.nodes.iter();
        let nodes = nodes.filter(|(name, node)| subject.may_go_to(&name.0, &node.labels));
        let cards = nodes.flat_map(|(name, node)| node.cards.iter().map(move |card| (name, card)));
        Candidates { cards: cards.filter(|(_, card)| card.resource == *resource).collect() }
    }
}

impl Candidates<'_> {
    /// Whether no card is known that the pod may come to. There may be none yet: an autoscaler makes
    /// nodes for pods that wait.
    pub(super) fn is_empty(&self) -> bool {
        self.cards.is_empty()
    }

    /// The most units that one container can get: of one shared card, or whole cards of one node.
    pub(super) fn most_units(&self) -> u64 {
        let mut whole: BTreeMap<&NodeName, u64> = BTreeMap::new();
        for (name, card) in self.cards.iter().filter(|(_, card)| !card.is_shared()) {
            let count = whole.entry(name).or_default();
            *count = count.saturating_add(card.units);
        }
        let shared = self.cards.iter().filter(|(_, card)| card.is_shared());
        shared.map(|(_, card)| card.units).chain(whole.into_values()).max().unwrap_or(0)
    }

    /// Whether one of the cards is shared.
    pub(super) fn may_be_shared(&self) -> bool {
        self.cards.iter().any(|(_, card)| card.is_shared())
    }

    /// The least memory that so many units are on any card that has them.
    pub(super) fn least_memory(&self, units: u64) -> Option<Memory> {
        self.sharing(units).map(|card| card.unit.times(units)).min()
    }

    /// The memory, where it is the same on each of the cards.
    pub(super) fn same_memory(&self, units: u64) -> Option<Memory> {
        let least = self.least_memory(units)?;
        self.sharing(units).all(|card| card.unit.times(units) == least).then_some(least)
    }

    /// The least part of the threads that so many units are on any card that has them.
    pub(super) fn least_percent(&self, units: u64) -> Option<ThreadPercent> {
        let units_of_percent = u32::try_from(units).unwrap_or(u32::MAX);
        self.sharing(units).map(|card| card.percent.times(units_of_percent)).min()
    }

    /// A driver whose MPS serves one user at a time, of a card that the pod may come to.
    pub(super) fn single_user_driver(&self) -> Option<&DriverVersion> {
        let card = self.cards.iter().find(|(_, card)| card.serves_one_user());
        card.and_then(|(_, card)| card.driver.as_ref())
    }

    fn sharing(&self, units: u64) -> impl Iterator<Item = &FleetCard> {
        let cards = self.cards.iter().map(|(_, card)| *card);
        cards.filter(move |card| card.is_shared() && units > 0 && card.units >= units)
    }
}
