//! Who has how much of which card, in the whole cluster, as schedulers must count it.
//!
//! The ledger is derived and never stored: nodes publish their cards, pods say in their specs how
//! much they hold and in an annotation where. Amounts come from specs alone. A bound pod whose
//! annotation doesn't name a possible place counts on *every* card that it may be on, so that
//! nothing that a user writes frees memory. Binds in flight count as if they had succeeded
//! ([`Ledger::reserve`]) until the pods' watch shows how they ended.
//!
//! What it doesn't know: what processes really use. The node enforces that.

mod book;
mod deadline;
mod demand;
mod departed;
mod fit;
mod usage;

#[cfg(test)]
mod tests;

pub use book::{Ledger, Reserved};
pub use demand::{Demand, Stage, Wish};
pub use fit::{Lack, Plan, Unfit};
pub use usage::{CardUse, NodeUse};

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;

use crate::placement::Policy;
use crate::{GpuUuid, Memory, ResourceName};

/// A node's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeName(pub String);

/// A pod's UID: a pod that is created again under its name is another pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodUid(pub String);

/// A map of nodes can be asked by a name that was never put into a value of its own.
impl Borrow<str> for NodeName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A card as its node offers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    /// Identity.
    pub uuid: GpuUuid,
    /// NVML's index.
    pub index: u32,
    /// The resource of its units.
    pub resource: ResourceName,
    /// The memory of one unit.
    pub unit: Memory,
    /// How many units there are.
    pub units: u64,
    /// The state that keeps new shares away; `None` when the card is Ready.
    pub not_ready: Option<String>,
    /// How many client contexts it takes.
    pub client_cap: u32,
    /// How many units pods have by what their node says; to compare with, it counts for nothing.
    pub held: Option<u64>,
    /// What processes use that have no share of it.
    pub outside: Memory,
    /// What is taken off its capacity for that, in whole units: see [`Outside`].
    pub withheld: Memory,
}

/// What memory that processes without a share use means for those that are to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Outside {
    /// Nothing: whoever has a share comes first, and the others will meet the end of the memory.
    #[default]
    Ignored,
    /// It is taken off what a card has.
    Subtracted,
}

impl Card {
    /// All that its units add up to.
    pub const fn capacity(&self) -> Memory {
        self.unit.times(self.units)
    }

    /// Whether its one unit is the whole card.
    pub const fn is_whole(&self) -> bool {
        self.units <= 1
    }
}

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    /// The cards in index order, or why they aren't known.
    pub cards: Result<Vec<Card>, String>,
    /// How a card is chosen.
    pub policy: Policy,
    /// The most pods on one card.
    pub max_pods: Option<u32>,
}

/// Where containers are: container name, card, units.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Allocation(pub BTreeMap<String, BTreeMap<GpuUuid, u64>>);

impl Allocation {
    /// Whether a container is on this card.
    pub fn names(&self, gpu: &GpuUuid) -> bool {
        self.0.values().any(|gpus| gpus.contains_key(gpu))
    }
}

/// What a pod's annotation says of its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// There is none.
    Absent,
    /// It can't be read.
    Unreadable,
    /// This place, which may be impossible.
    Of(Allocation),
}

/// What is known of a pod that asks for units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodFacts {
    /// Identity.
    pub uid: PodUid,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The node that it is bound to.
    pub node: Option<NodeName>,
    /// What it asks for.
    pub demand: Demand,
    /// Where its annotation says that it is.
    pub claim: Claim,
    /// Whether its node has said that it is there. Until then a pod of its size may have its place.
    pub is_confirmed: bool,
}
