//! What the pods of one node hold on each of its cards.

use super::demand::{Wish, clients, peak};
use super::{Allocation, Card, Claim, Demand, NodeFacts, PodUid};
use crate::placement::Policy;
use crate::{Memory, ResourceName};

/// What is held on one card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardUse {
    /// The card.
    pub card: Card,
    /// Held by pods that are known to be on it.
    pub placed: Memory,
    /// Held by pods that may be on it, since nothing says where they are.
    pub unplaced: Memory,
    /// Containers on it, each a client at least.
    pub clients: u64,
    /// The pods that are known to be on it, with their units.
    pub pods: Vec<(PodUid, u64)>,
    /// How many pods are or may be on it.
    pub pod_count: u64,
}

/// What is held on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeUse {
    /// The cards in index order, or why they aren't known.
    pub cards: Result<Vec<CardUse>, String>,
    /// How a card is chosen.
    pub policy: Policy,
    /// The most pods on one card.
    pub max_pods: Option<u32>,
    /// The pods of which nothing says where they are.
    pub unplaced: Vec<PodUid>,
}

impl CardUse {
    fn of(card: &Card) -> Self {
        Self {
            card: card.clone(),
            placed: Memory::ZERO,
            unplaced: Memory::ZERO,
            clients: 0,
            pods: Vec::new(),
            pod_count: 0,
        }
    }

    /// All that is or may be held.
    pub fn held(&self) -> Memory {
        [self.placed, self.unplaced].into_iter().sum()
    }

    /// What is certainly left.
    pub fn free(&self) -> Memory {
        self.card.capacity().saturating_sub(self.card.withheld).saturating_sub(self.held())
    }
}

/// What is known of a node that hasn't said anything.
pub(super) static UNKNOWN: NodeFacts =
    NodeFacts { cards: Ok(Vec::new()), policy: Policy::Binpack, max_pods: None };

/// What is held on it.
pub(super) static UNKNOWN_USE: NodeUse = NodeUse {
    cards: Ok(Vec::new()),
    policy: Policy::Binpack,
    max_pods: None,
    unplaced: Vec::new(),
};

impl NodeUse {
    /// What these pods hold on a node.
    pub(crate) fn of<'a>(
        facts: &NodeFacts,
        pods: impl Iterator<Item = (&'a PodUid, &'a Demand, &'a Claim)>,
    ) -> Self {
        let cards = facts.cards.as_ref().map(|cards| cards.iter().map(CardUse::of).collect());
        let mut usage = Self {
            cards: cards.map_err(Clone::clone),
            policy: facts.policy,
            max_pods: facts.max_pods,
            unplaced: Vec::new(),
        };
        for (uid, demand, claim) in pods {
            usage.add(uid, demand, claim);
        }
        usage
    }

    fn add(&mut self, uid: &PodUid, demand: &Demand, claim: &Claim) {
        let Ok(cards) = &mut self.cards else {
            self.unplaced.push(uid.clone());
            return;
        };
        match claim {
            Claim::Of(allocation) if is_possible(allocation, demand, cards) => {
                for card in cards {
                    card.place(uid, demand, allocation);
                }
            }
            Claim::Of(_) | Claim::Absent | Claim::Unreadable => {
                for card in cards.iter_mut() {
                    card.may_have(demand);
                }
                if !is_only_whole(demand, cards) {
                    self.unplaced.push(uid.clone());
                }
            }
        }
    }
}

impl CardUse {
    fn place(&mut self, uid: &PodUid, demand: &Demand, allocation: &Allocation) {
        let here = |wish: &&Wish| {
            allocation.0.get(&wish.container).is_some_and(|gpus| gpus.contains_key(&self.card.uuid))
        };
        let wishes: Vec<&Wish> = demand.wishes().iter().filter(here).collect();
        if wishes.is_empty() {
            return;
        }
        // More than one card per container only exists where each is whole.
        let units = peak(wishes.iter().copied());
        let units = if self.card.is_whole() { units.min(1) } else { units };
        self.placed = [self.placed, self.card.unit.times(units)].into_iter().sum();
        self.clients = self.clients.saturating_add(clients(wishes));
        self.pod_count = self.pod_count.saturating_add(1);
        self.pods.push((uid.clone(), units));
    }

    fn may_have(&mut self, demand: &Demand) {
        let mine = || demand.wishes().iter().filter(|wish| wish.resource == self.card.resource);
        let (units, containers) = (peak(mine()), clients(mine()));
        if units == 0 {
            return;
        }
        self.unplaced = [self.unplaced, self.card.unit.times(units)].into_iter().sum();
        self.clients = self.clients.saturating_add(containers);
        self.pod_count = self.pod_count.saturating_add(1);
    }
}

/// Whether an allocation can be true: each container that asks for units of shared cards has the
/// units that its spec asks for, on one card of the node that offers them, and no container has
/// units that doesn't ask for any.
fn is_possible(allocation: &Allocation, demand: &Demand, cards: &[CardUse]) -> bool {
    let known =
        allocation.0.keys().all(|name| demand.wishes().iter().any(|wish| wish.container == *name));
    known
        && demand.wishes().iter().all(|wish| {
            let Some(gpus) = allocation.0.get(&wish.container) else {
                return is_whole_or_foreign(&wish.resource, cards);
            };
            let sum = gpus.values().fold(0_u64, |sum, units| sum.saturating_add(*units));
            sum == wish.units
                && gpus.iter().all(|(uuid, units)| {
                    let card = cards.iter().find(|card| card.card.uuid == *uuid);
                    card.is_some_and(|card| {
                        let is_alone = gpus.len() == 1 || card.card.is_whole();
                        card.card.resource == wish.resource && *units <= card.card.units && is_alone
                    })
                })
        })
}

/// Whether all of it is whole cards, of which nobody needs to know who has which.
fn is_only_whole(demand: &Demand, cards: &[CardUse]) -> bool {
    demand.wishes().iter().all(|wish| is_whole_or_foreign(&wish.resource, cards))
}

fn is_whole_or_foreign(resource: &ResourceName, cards: &[CardUse]) -> bool {
    let mut offered = cards.iter().filter(|card| card.card.resource == *resource);
    !is_memory(resource) && offered.all(|card| card.card.is_whole())
}

/// Whether units of this resource are amounts of memory, placed by the scheduler.
pub(super) fn is_memory(resource: &ResourceName) -> bool {
    resource.as_str() != "nvidia.com/gpu"
}
