//! What a container holds of a card.

use std::collections::BTreeSet;

use crate::{DeviceId, GpuUuid, Memory, ResourceName, ThreadPercent};

/// Memory and threads of one card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// How much memory, over all processes of the container.
    pub memory: Memory,
    /// At most this part of the threads.
    pub percent: ThreadPercent,
}

/// What the control daemon applies to a client that brings no limits of its own.
pub type Limits = Share;

/// Whether a share is held through MPS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// As a client of the card's MPS daemon.
    Mps,
    /// The whole card, without MPS.
    Exclusive,
}

/// A share that a container holds now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveShare {
    /// The kubelet's tokens for it, all of one card, never empty.
    pub ids: Vec<DeviceId>,
    /// The card.
    pub gpu: GpuUuid,
    /// The resource that it was asked by.
    pub resource: ResourceName,
    /// How the container reaches the card.
    pub mode: Mode,
    /// How much it is; stays what it was when it was granted, whatever the config says later.
    pub share: Share,
}

impl LiveShare {
    /// The share after some of its ids went to somebody else: the rest keeps its part.
    ///
    /// This happens when a container takes over the ids of a finished init container
    /// (facts/kubernetes.md 1.9). `None` when no id is left.
    pub fn without(&self, taken: &BTreeSet<DeviceId>) -> Option<Self> {
        let ids: Vec<DeviceId> =
            self.ids.iter().filter(|id| !taken.contains(id)).cloned().collect();
        if ids.len() == self.ids.len() {
            return Some(self.clone());
        }
        let left = u32::try_from(ids.len()).ok().filter(|left| *left > 0)?;
        let parts = u32::try_from(self.ids.len()).ok()?;
        let share = Share {
            memory: self.share.memory.split(parts).times(left.into()),
            percent: self.share.percent.split(parts).times(left),
        };
        Some(Self { ids, share, ..self.clone() })
    }
}

/// The live shares that stay when `taken` ids of `resource` go to a new owner. The same id of
/// another resource is another device to the kubelet (facts/kubernetes.md 1.3): its owner stays.
pub(crate) fn without_ids(
    live: &[LiveShare],
    resource: &ResourceName,
    taken: &[DeviceId],
) -> Vec<LiveShare> {
    let taken: BTreeSet<DeviceId> = taken.iter().cloned().collect();
    let stays = |share: &LiveShare| {
        if share.resource == *resource { share.without(&taken) } else { Some(share.clone()) }
    };
    live.iter().filter_map(stays).collect()
}
