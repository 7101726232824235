//! What a configuration asks for, free of its file format.

use crate::{GpuUuid, ResourceName};

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
}

/// Cards that are cut into equal replicas under one resource name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedResource {
    /// The name under which the units are offered (after any rename).
    pub resource: ResourceName,
    /// Units per card, at least 1.
    pub replicas: u32,
    /// Which cards.
    pub devices: DeviceSelector,
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
