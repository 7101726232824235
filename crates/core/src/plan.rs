//! Configuration x inventory x live shares -> what each card runs and which units it offers.
//!
//! Both node processes call [`plan`] on the same inputs. The part of the result that depends on
//! the configuration and the card alone has a name, the [`Generation`]; the device plugin offers
//! units only while the supervisor reports limits verified at the generation that the plugin
//! computed itself.
//!
//! Live shares keep their size. What the new configuration can't yet back, in memory or in
//! threads, is [`UnitState::Unbacked`] until enough old shares end. On a card that is to be emptied
//! ([`crate::Drain`]) nothing is backed, and nothing is hosted once nobody holds a share of it.

mod device_list;
mod drained;
mod generation;
mod target;

pub use generation::Generation;
pub(crate) use target::Target;

use std::collections::BTreeSet;

use crate::{
    DeviceId, Gpu, GpuUuid, Inventory, Limits, LiveShare, Memory, Mode, NodeConfig, Reason,
    ResourceName, Share, ThreadPercent,
};
use target::SharedTarget;

/// The smallest replica that is worth offering: a CUDA context alone takes 250 to 500 MiB, and MPS
/// counts it against the limit (facts/mps.md 2; NVIDIA/k8s-device-plugin#1118).
pub const MINIMUM_UNIT: Memory = Memory::from_mib(512);

/// What a node should run and offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePlan {
    /// One plan per card, in inventory order.
    pub gpus: Vec<GpuPlan>,
    /// Entries of the configuration that select no card of this node.
    pub refusals: Vec<Reason>,
}

impl NodePlan {
    /// Looks a card's plan up.
    pub fn gpu(&self, uuid: &GpuUuid) -> Option<&GpuPlan> {
        self.gpus.iter().find(|gpu| gpu.gpu == *uuid)
    }
}

/// What one card should run and offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuPlan {
    /// The card.
    pub gpu: GpuUuid,
    /// The name of what the configuration wants of this card.
    pub generation: Generation,
    /// What has to run for the card now, live shares included.
    pub hosting: Hosting,
    /// Every unit that the kubelet should be told of, healthy or not.
    pub units: Vec<Unit>,
    /// How many units the configuration wants of the card; 0 while it is refused.
    pub replicas: u32,
    /// How many more units could be granted now.
    pub free: u32,
    /// Memory that no live share holds.
    pub left: Memory,
    /// What new units belong to; `None` while the card is refused.
    pub resource: Option<ResourceName>,
    /// What one new unit is; `None` while the card is refused.
    pub unit: Option<Share>,
    /// How the card is cut; `None` while it is refused.
    pub kind: Option<UnitKind>,
    /// Whether the card is to be emptied.
    pub is_drained: bool,
    /// Why the configuration isn't in force yet, or can't be.
    pub reason: Option<Reason>,
}

impl GpuPlan {
    /// Whether new units are shares under MPS.
    pub fn is_shared(&self) -> bool {
        matches!(self.kind, Some(UnitKind::Replica | UnitKind::Memory))
    }

    /// Whether new units belong to `resource`.
    pub fn offers(&self, resource: &ResourceName) -> bool {
        self.units.iter().any(|unit| unit.state != UnitState::Held && unit.resource == *resource)
    }
}

/// What the units of a card are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitKind {
    /// The one unit is the whole card, without MPS.
    Whole,
    /// Equal parts of memory and threads under MPS: all of them are the whole card.
    Replica,
    /// Amounts of memory under MPS, each of them with all threads: n units are exactly n times
    /// the amount, and what threads the live shares may use in all isn't limited.
    Memory,
}

/// What a card needs running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hosting {
    /// Nothing: the card is refused and nobody holds a share of it.
    Nothing,
    /// No MPS, the compute mode that was there before.
    Exclusive,
    /// An MPS control daemon.
    Mps {
        /// Names the card's directory.
        resource: ResourceName,
        /// What a client without limits of its own gets: the largest live share, or one unit.
        limits: Limits,
    },
}

/// A token and its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// The token.
    pub id: DeviceId,
    /// The resource whose list it belongs to.
    pub resource: ResourceName,
    /// Whether it may be handed out.
    pub state: UnitState,
}

impl Unit {
    /// Whether a container holds it.
    pub fn is_held(&self) -> bool {
        self.state == UnitState::Held
    }
}

/// Whether a token may be handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitState {
    /// Yes.
    Free,
    /// A container holds it.
    Held,
    /// Not before enough other shares have ended.
    Unbacked,
}

/// Computes the plan of a node.
pub fn plan(config: &NodeConfig, inventory: &Inventory, live: &[LiveShare]) -> NodePlan {
    let (targets, refusals) = target::targets(config, inventory);
    let gpus = inventory
        .gpus
        .iter()
        .zip(targets)
        .map(|(gpu, target)| {
            let held: Vec<&LiveShare> = live.iter().filter(|l| l.gpu == gpu.uuid).collect();
            let open = gpu_plan(gpu, &target, &held);
            if config.drain.contains(&gpu.uuid) { drained::of(open, &held) } else { open }
        })
        .collect();
    NodePlan { gpus, refusals }
}

fn gpu_plan(gpu: &Gpu, target: &Target, held: &[&LiveShare]) -> GpuPlan {
    let conflict = conflict(gpu, target, held);
    let free = if conflict.is_some() { 0 } else { free_units(gpu, target, held) };
    let refusal = match target {
        Target::Refused(reason) => Some(reason.clone()),
        Target::Exclusive { .. } | Target::Shared(_) => None,
    };
    let generation = Generation::of(target);
    let former = held.first().filter(|_| conflict.is_some());
    GpuPlan {
        gpu: gpu.uuid.clone(),
        generation: former.map_or(generation.clone(), |live| generation.after(&live.resource)),
        hosting: hosting(target, held),
        units: units(gpu, target, held, free),
        replicas: target.replicas(),
        free,
        left: memory_left(gpu, target, held),
        resource: target.resource().cloned(),
        unit: target.unit(gpu),
        kind: target.kind(),
        is_drained: false,
        reason: refusal.or(conflict).or_else(|| shortage(gpu, target, held, free)),
    }
}

/// New units can't join live shares that reach the card in another way, or by another name.
fn conflict(gpu: &Gpu, target: &Target, held: &[&LiveShare]) -> Option<Reason> {
    let fits = |live: &LiveShare| match target {
        Target::Shared(wanted) => live.mode == Mode::Mps && live.resource == wanted.resource,
        Target::Exclusive { resource } => {
            live.mode == Mode::Exclusive && live.resource == *resource
        }
        Target::Refused(_) => true,
    };
    held.iter().any(|live| !fits(live)).then(|| Reason::WaitingForShares {
        gpu: gpu.uuid.clone(),
        shares: held.len(),
        memory: held.iter().map(|live| live.share.memory).sum(),
    })
}

/// Some of the wanted units can't be backed yet.
fn shortage(gpu: &Gpu, target: &Target, held: &[&LiveShare], free: u32) -> Option<Reason> {
    let Target::Shared(wanted) = target else {
        return None;
    };
    let held_ids: usize = held.iter().map(|live| live.ids.len()).sum();
    let open = usize::try_from(wanted.replicas).unwrap_or(usize::MAX).saturating_sub(held_ids);
    let free_ids = usize::try_from(free).unwrap_or(usize::MAX);
    if free_ids >= open {
        return None;
    }
    if clients_left(wanted, held) == 0 {
        let (gpu, shares) = (gpu.uuid.clone(), held.len());
        return Some(Reason::NoClientLeft { gpu, shares, cap: wanted.most_shares });
    }
    let left = memory_left(gpu, target, held);
    Some(Reason::UnitsNotBacked {
        gpu: gpu.uuid.clone(),
        units: open.saturating_sub(free_ids),
        unit: wanted.unit.memory,
        left: left.saturating_sub(wanted.unit.memory.times(free.into())),
    })
}

/// Memory for new shares: a reserve is none.
fn memory_left(gpu: &Gpu, target: &Target, held: &[&LiveShare]) -> Memory {
    let usable = match target {
        Target::Shared(wanted) => wanted.usable,
        Target::Exclusive { .. } | Target::Refused(_) => gpu.memory,
    };
    usable.saturating_sub(held.iter().map(|live| live.share.memory).sum())
}

/// How many more containers the card takes: each has one client at least.
fn clients_left(wanted: &SharedTarget, held: &[&LiveShare]) -> usize {
    usize::try_from(wanted.most_shares).unwrap_or(usize::MAX).saturating_sub(held.len())
}

/// How many new units memory, threads and the count of units leave room for.
fn free_units(gpu: &Gpu, target: &Target, held: &[&LiveShare]) -> u32 {
    match target {
        Target::Refused(_) => 0,
        Target::Exclusive { .. } => u32::from(held.is_empty()),
        Target::Shared(wanted) if clients_left(wanted, held) == 0 => 0,
        Target::Shared(wanted) => {
            let by_memory = memory_left(gpu, target, held).pieces_of(wanted.unit.memory);
            let by_memory = u32::try_from(by_memory).unwrap_or(u32::MAX);
            by_memory.min(units_by_threads(wanted, held)).min(wanted.replicas)
        }
    }
}

fn units_by_threads(wanted: &SharedTarget, held: &[&LiveShare]) -> u32 {
    if wanted.kind == UnitKind::Memory {
        return u32::MAX;
    }
    let used: u32 = held.iter().map(|live| live.share.percent.tenths()).sum();
    let left = ThreadPercent::FULL.tenths().saturating_sub(used);
    left.checked_div(wanted.unit.percent.tenths()).unwrap_or(0)
}

fn hosting(target: &Target, held: &[&LiveShare]) -> Hosting {
    match held.first() {
        Some(live) if live.mode == Mode::Exclusive => return Hosting::Exclusive,
        None if matches!(target, Target::Exclusive { .. }) => return Hosting::Exclusive,
        None if matches!(target, Target::Refused(_)) => return Hosting::Nothing,
        Some(_) | None => {}
    }
    // Only units that may be granted beside the live shares raise the limits.
    let unit = match target {
        Target::Shared(wanted) if held.iter().all(|live| live.resource == wanted.resource) => {
            Some((&wanted.resource, &wanted.unit))
        }
        Target::Shared(_) | Target::Exclusive { .. } | Target::Refused(_) => None,
    };
    mps_for(held.iter().map(|live| (&live.resource, &live.share)).chain(unit))
}

/// A daemon whose default lets the largest of these shares through.
fn mps_for<'a>(shares: impl Iterator<Item = (&'a ResourceName, &'a Share)>) -> Hosting {
    let largest =
        shares.fold(None, |largest: Option<(&ResourceName, Limits)>, (resource, share)| {
            let (name, limits) = largest.unwrap_or((resource, *share));
            let memory = limits.memory.max(share.memory);
            let percent = limits.percent.max(share.percent);
            Some((name, Limits { memory, percent }))
        });
    largest.map_or(Hosting::Nothing, |(resource, limits)| Hosting::Mps {
        resource: resource.clone(),
        limits,
    })
}

/// The ids of live shares, then the ids that the target names, as many of them free as are backed.
fn units(gpu: &Gpu, target: &Target, held: &[&LiveShare], free: u32) -> Vec<Unit> {
    let held_ids = held.iter().flat_map(|live| {
        live.ids.iter().map(|id| Unit {
            id: id.clone(),
            resource: live.resource.clone(),
            state: UnitState::Held,
        })
    });
    let mut units: Vec<Unit> = held_ids.collect();
    // A card may have ten thousands of units.
    let taken: BTreeSet<&DeviceId> = held.iter().flat_map(|live| &live.ids).collect();
    let mut free_left = free;
    for id in target.ids(gpu) {
        if taken.contains(&id) {
            continue;
        }
        let state = if free_left > 0 { UnitState::Free } else { UnitState::Unbacked };
        free_left = free_left.saturating_sub(1);
        if let Some(resource) = target.resource() {
            units.push(Unit { id, resource: resource.clone(), state });
        }
    }
    units.sort_by(|a, b| a.id.cmp(&b.id));
    units
}

#[cfg(test)]
mod tests;
