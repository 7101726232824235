//! What the pods of one node hold on each of its cards, and where a new one fits.

use super::demand::{Wish, clients, peak};
use super::{Allocation, Card, Claim, Demand, NodeFacts, PodUid};
use crate::placement::{self, Need, Policy, Room};
use crate::{Memory, Reason, ResourceName};

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

/// Where a pod goes on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// Here, and the node scores so much, 0 to 10.
    On {
        /// The place of each container.
        allocation: Allocation,
        /// The node's score.
        score: u8,
    },
    /// It isn't ours to say: whole cards, or another plugin's node.
    Anywhere,
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
        self.card.capacity().saturating_sub(self.held())
    }
}

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

    /// What is known of a node that hasn't said anything.
    pub(crate) fn unknown() -> NodeFacts {
        NodeFacts { cards: Ok(Vec::new()), policy: Policy::Binpack, max_pods: None }
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

    /// Where a pod fits, or the reason why nowhere.
    pub fn plan(&self, demand: &Demand) -> Result<Plan, Reason> {
        if let Some(label) = demand.several_gpus() {
            return Err(Reason::SeveralGpusAsked { label: label.to_owned() });
        }
        let cards = match &self.cards {
            Ok(cards) => cards,
            Err(_) if !demand.wishes().iter().any(|wish| is_memory(&wish.resource)) => {
                return Ok(Plan::Anywhere);
            }
            Err(problem) => {
                return Err(Reason::BadInventory { problem: problem.clone() });
            }
        };
        let mut ours = Vec::new();
        for group in demand.groups() {
            // None: whole cards, or units of somebody else, which the kubelet counts.
            if let Some(need) = need(&group, cards)? {
                ours.push((group, need));
            }
        }
        if ours.is_empty() {
            return Ok(Plan::Anywhere);
        }
        let mut rooms: Vec<Room<'_>> = cards.iter().map(|card| self.room(card)).collect();
        let needs: Vec<Need<'_>> = ours.iter().map(|(_, need)| need.clone()).collect();
        let places = placement::place(&needs, &rooms, self.policy.placement())
            .ok_or_else(|| self.refusal(&needs, cards))?;
        let mut allocation = Allocation::default();
        for ((group, need), place) in ours.iter().zip(places) {
            let Some(card) = cards.get(place) else { continue };
            if let Some(room) = rooms.get_mut(place) {
                room.take(need);
            }
            for wish in group {
                let gpus = [(card.card.uuid.clone(), wish.units)];
                allocation.0.insert(wish.container.clone(), gpus.into());
            }
        }
        let score = placement::score(&rooms, self.policy.placement());
        Ok(Plan::On { allocation, score })
    }

    fn room<'a>(&self, usage: &'a CardUse) -> Room<'a> {
        let card = &usage.card;
        // Device ids are per card, so the kubelet can't over-commit one. Of pods without a place
        // the units of the memory mode count everywhere; in replicas mode many have none, and
        // counting them everywhere would leave free cards unused.
        let held = if is_memory(&card.resource) { usage.held() } else { usage.placed };
        let pods_left =
            self.max_pods.map_or(u64::MAX, |most| u64::from(most).saturating_sub(usage.pod_count));
        Room {
            resource: &card.resource,
            unit: card.unit,
            capacity: card.capacity(),
            free: card.capacity().saturating_sub(held),
            clients_left: u64::from(card.client_cap).saturating_sub(usage.clients),
            is_open: card.not_ready.is_none() && pods_left > 0,
        }
    }

    fn refusal(&self, needs: &[Need<'_>], cards: &[CardUse]) -> Reason {
        let Some(largest) = needs.iter().max_by_key(|need| need.units) else {
            return Reason::EmptyRequest;
        };
        let mine = cards.iter().filter(|card| card.card.resource == *largest.resource);
        Reason::NoGpuFits {
            resource: largest.resource.clone(),
            asked: needs.iter().map(|need| need.units).collect(),
            cards: mine.map(|card| self.describe(card)).collect(),
        }
    }

    fn describe(&self, usage: &CardUse) -> String {
        let card = &usage.card;
        let name = format!("GPU{}", card.index);
        if let Some(state) = &card.not_ready {
            return format!("{name} is {state}");
        }
        let held = usage.held();
        let mut text = format!("{} allocated on {name}", of(held, card.capacity()));
        if usage.unplaced > Memory::ZERO {
            text.extend([" (", &usage.unplaced.to_string(), " of it by pods without a place)"]);
        }
        if self.max_pods.is_some_and(|most| usage.pod_count >= u64::from(most)) {
            text.extend([" to ", &usage.pod_count.to_string(), " pods, the node's most"]);
        } else if usage.clients >= u64::from(card.client_cap) {
            text.extend([" to ", &usage.clients.to_string(), " clients, the most that MPS takes"]);
        }
        text
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

/// What a group needs of one card; `None` where that isn't ours to say.
fn need<'a>(group: &[&'a Wish], cards: &[CardUse]) -> Result<Option<Need<'a>>, Reason> {
    let Some(first) = group.first() else { return Ok(None) };
    let resource = &first.resource;
    if let Some(other) = group.iter().find(|wish| wish.resource != *resource) {
        return Err(Reason::TwoResources {
            first: resource.clone(),
            second: other.resource.clone(),
        });
    }
    let mut offered = cards.iter().filter(|card| card.card.resource == *resource).peekable();
    if offered.peek().is_none() {
        let nothing = is_memory(resource).then(|| Reason::NoUnits { resource: resource.clone() });
        return nothing.map_or(Ok(None), Err);
    }
    if offered.all(|card| card.card.is_whole()) && !is_memory(resource) {
        return Ok(None);
    }
    Ok(Some(Need {
        resource,
        units: peak(group.iter().copied()),
        clients: clients(group.iter().copied()),
    }))
}

/// Whether an allocation can be true: each container that asks for units, and no other, has the
/// units that its spec asks for, on one card of the node that offers them.
fn is_possible(allocation: &Allocation, demand: &Demand, cards: &[CardUse]) -> bool {
    let known =
        allocation.0.keys().all(|name| demand.wishes().iter().any(|wish| wish.container == *name));
    known
        && demand.wishes().iter().all(|wish| {
            let Some(gpus) = allocation.0.get(&wish.container) else { return false };
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
    demand.wishes().iter().all(|wish| {
        let mut offered = cards.iter().filter(|card| card.card.resource == wish.resource);
        !is_memory(&wish.resource) && offered.all(|card| card.card.is_whole())
    })
}

/// Whether units of this resource are amounts of memory, placed by the scheduler.
fn is_memory(resource: &ResourceName) -> bool {
    resource.as_str() != "nvidia.com/gpu"
}

/// `14 of 15 GiB`.
fn of(part: Memory, whole: Memory) -> String {
    let is_gib = |memory: Memory| memory.mib().is_multiple_of(1024);
    if is_gib(part) && is_gib(whole) {
        format!("{} of {} GiB", part.mib() / 1024, whole.mib() / 1024)
    } else {
        format!("{} of {} MiB", part.mib(), whole.mib())
    }
}
