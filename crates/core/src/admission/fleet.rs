//! The cards of the cluster's nodes, as far as admission has to know them.

use std::collections::{BTreeMap, BTreeSet};

use super::Subject;
use crate::ledger::NodeName;
use crate::{DriverVersion, Memory, ResourceName, ThreadPercent, VersionProfile};

/// All nodes with cards.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fleet {
    nodes: BTreeMap<NodeName, FleetNode>,
    /// On how many cards each resource is: asked for each pod, and there may be thousands of cards.
    resources: BTreeMap<ResourceName, usize>,
}

/// A node with shared cards. Whole ones don't matter: they have no share that could be stepped over.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FleetNode {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its shared cards, whatever state they are in.
    pub cards: Vec<FleetCard>,
}

/// A shared card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetCard {
    /// The resource of its units.
    pub resource: ResourceName,
    /// The memory of one unit.
    pub unit: Memory,
    /// The threads of one unit.
    pub percent: ThreadPercent,
    /// How many units it is cut into; while old shares live, fewer may be offered.
    pub units: u64,
    /// The node's driver.
    pub driver: Option<DriverVersion>,
}

impl FleetCard {
    /// Whether the MPS of its driver serves one user at a time; unknown drivers are taken for new
    /// ones.
    fn serves_one_user(&self) -> bool {
        let profile = self.driver.as_ref().map(VersionProfile::of);
        profile.is_some_and(|it| it.is_none_or(|it| !it.has_multiuser_server()))
    }
}

/// The cards of one resource to which a pod may come.
#[derive(Debug)]
pub(super) struct Candidates<'a> {
    resource: &'a ResourceName,
    cards: Vec<&'a FleetCard>,
}

impl Fleet {
    /// Takes in what a node says. One without cards is forgotten.
    pub fn set(&mut self, name: &NodeName, node: FleetNode) {
        self.remove(name);
        if node.cards.is_empty() {
            return;
        }
        for card in &node.cards {
            *self.resources.entry(card.resource.clone()).or_default() += 1;
        }
        self.nodes.insert(name.clone(), node);
    }

    /// Forgets a node.
    pub fn remove(&mut self, name: &NodeName) {
        for card in self.nodes.remove(name).iter().flat_map(|node| &node.cards) {
            if let Some(count) = self.resources.get_mut(&card.resource) {
                *count = count.saturating_sub(1);
            }
        }
        self.resources.retain(|_, count| *count > 0);
    }

    /// Forgets all nodes but these.
    pub fn keep(&mut self, known: &BTreeSet<NodeName>) {
        let gone: Vec<NodeName> =
            self.nodes.keys().filter(|name| !known.contains(*name)).cloned().collect();
        for name in &gone {
            self.remove(name);
        }
    }

    pub(super) fn candidates<'a>(
        &'a self,
        subject: &Subject,
        resource: &'a ResourceName,
    ) -> Candidates<'a> {
        let nodes = self.nodes.iter();
        let nodes = nodes.filter(|(name, node)| subject.may_go_to(&name.0, &node.labels));
        let cards = nodes.flat_map(|(_, node)| &node.cards);
        Candidates { resource, cards: cards.filter(|card| card.resource == *resource).collect() }
    }

    /// The resources of all cards.
    pub fn resources(&self) -> impl Iterator<Item = &ResourceName> {
        self.resources.keys()
    }
}

impl Candidates<'_> {
    /// Whether so many units may be a share of a card. Units of memory are, also where no card is
    /// known yet: an autoscaler makes nodes for pods that wait. Others may be whole cards, which
    /// nobody tells of.
    pub(super) fn may_share(&self, units: u64) -> bool {
        self.resource.is_memory() || self.sharing(units).next().is_some()
    }

    /// The most units that one card has, of a resource of which no card is handed out whole.
    pub(super) fn most_units(&self) -> Option<u64> {
        let most = self.cards.iter().map(|card| card.units).max();
        most.filter(|_| self.resource.is_memory())
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
        self.cards.iter().find(|card| card.serves_one_user())?.driver.as_ref()
    }

    fn sharing(&self, units: u64) -> impl Iterator<Item = &FleetCard> {
        let cards = self.cards.iter().copied();
        cards.filter(move |card| units > 0 && card.units >= units)
    }
}
