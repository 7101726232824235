//! What a configuration asks for, free of its file format.

use std::collections::BTreeSet;

use crate::{GpuUuid, Memory, ResourceName};

/// The wish for a node: cards that no entry selects are handed out whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeConfig {
    /// The resource of whole cards, `nvidia.com/gpu`.
    pub exclusive_resource: ResourceName,
    /// What to share; an entry with one replica means whole cards too.
    pub sharing: Vec<SharedResource>,
    /// How requests for more than one unit are answered.
    pub large_requests: LargeRequests,
    /// Which card is filled first.
    pub policy: AllocationPolicy,
    /// Which cards people want empty, whatever the rest says.
    pub drain: Drain,
}

/// Which cards are to be emptied: they take no new shares, and nothing runs for them once nobody
/// holds a share of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Drain {
    /// None.
    #[default]
    Nothing,
    /// The node's, whichever they are.
    All,
    /// These.
    Cards(BTreeSet<GpuUuid>),
}

impl Drain {
    /// Whether this card is to be emptied.
    pub fn contains(&self, gpu: &GpuUuid) -> bool {
        match self {
            Self::Nothing => false,
            Self::All => true,
            Self::Cards(gpus) => gpus.contains(gpu),
        }
    }
}

/// Cards that are cut into equal units under one resource name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedResource {
    /// The name under which the units are offered (after any rename).
    pub resource: ResourceName,
    /// What a unit is.
    pub cut: Cut,
    /// Which cards.
    pub devices: DeviceSelector,
}

impl SharedResource {
    /// Whether the units are shares under MPS, and not whole cards.
    pub const fn is_shared(&self) -> bool {
        !matches!(self.cut, Cut::Replicas(0 | 1))
    }
}

/// How a card is cut into units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Into so many equal parts of its memory and its threads, at least 1.
    Replicas(u32),
    /// Into as many amounts of memory as it has, each with all threads.
    Memory(MemoryUnits),
}

/// Units that are amounts of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUnits {
    /// One unit, more than nothing.
    pub unit: Memory,
    /// What is left out of each card's units, for whatever else uses the card.
    pub reserve: Memory,
}

/// Which cards an entry means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceSelector {
    /// All that no entry names.
    All,
    /// The first n by index that no entry names.
    Count(u32),
    /// These.
    Listed(Vec<DeviceRef>),
}

/// One card in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceRef {
    /// NVML's index.
    Index(u32),
    /// The UUID.
    Uuid(GpuUuid),
}

/// `failRequestsGreaterThanOne`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LargeRequests {
    /// n units of one card are n times the memory and the threads.
    Allow,
    /// More than one unit of a shared card is refused.
    Refuse,
}

/// `sharedDevicesAllocationPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocationPolicy {
    /// The card with the most free units first.
    Distributed,
    /// The card with the fewest free units that still fits first.
    Packed,
}
