//! What the configuration wants of each card, live shares aside.

use crate::config::DeviceRef;
use crate::{
    ComputeCapability, Cut, DeviceId, DeviceSelector, Gpu, Inventory, Memory, MemoryUnits, MigMode,
    NodeConfig, Reason, ResourceName, Share, SharedResource, ThreadPercent, VersionProfile,
};

use super::device_list::refuse_long_lists;
use super::{MINIMUM_UNIT, UnitKind};

/// The wish for one card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// One unit, the whole card, no MPS.
    Exclusive {
        /// Its resource.
        resource: ResourceName,
    },
    /// Equal units under MPS.
    Shared(SharedTarget),
    /// The card can't do what is asked of it.
    Refused(Reason),
}

/// Equal units of a card under MPS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SharedTarget {
    /// Their resource.
    pub(super) resource: ResourceName,
    /// How many.
    pub(super) replicas: u32,
    /// What each of them is.
    pub(super) unit: Share,
    /// Parts of the card, or amounts of memory.
    pub(super) kind: UnitKind,
    /// The part of the card's memory that they are cut from.
    pub(super) usable: Memory,
    /// The most containers that can hold some of them at a time.
    pub(super) most_shares: u32,
}

impl Target {
    pub(super) fn ids(&self, gpu: &Gpu) -> Vec<DeviceId> {
        match self {
            Self::Exclusive { .. } => vec![DeviceId::whole(gpu.uuid.clone())],
            Self::Shared(wanted) => {
                (0..wanted.replicas).map(|n| DeviceId::replica(gpu.uuid.clone(), n)).collect()
            }
            Self::Refused(_) => Vec::new(),
        }
    }

    pub(super) const fn replicas(&self) -> u32 {
        match self {
            Self::Exclusive { .. } => 1,
            Self::Shared(wanted) => wanted.replicas,
            Self::Refused(_) => 0,
        }
    }

    pub(super) const fn resource(&self) -> Option<&ResourceName> {
        match self {
            Self::Exclusive { resource } => Some(resource),
            Self::Shared(wanted) => Some(&wanted.resource),
            Self::Refused(_) => None,
        }
    }

    pub(super) const fn unit(&self, gpu: &Gpu) -> Option<Share> {
        match self {
            Self::Exclusive { .. } => {
                Some(Share { memory: gpu.memory, percent: ThreadPercent::FULL })
            }
            Self::Shared(wanted) => Some(wanted.unit),
            Self::Refused(_) => None,
        }
    }

    pub(super) const fn kind(&self) -> Option<UnitKind> {
        match self {
            Self::Exclusive { .. } => Some(UnitKind::Whole),
            Self::Shared(wanted) => Some(wanted.kind),
            Self::Refused(_) => None,
        }
    }
}

/// One target per card of the inventory, and the entries that selected nothing.
pub(super) fn targets(config: &NodeConfig, inventory: &Inventory) -> (Vec<Target>, Vec<Reason>) {
    let (selected, refusals) = select(config, inventory);
    let targets = inventory
        .gpus
        .iter()
        .zip(selected)
        .map(|(gpu, entry)| match entry {
            // A card that MIG has cut up can be handed out neither whole nor through MPS.
            _ if gpu.mig == MigMode::Enabled => {
                Target::Refused(Reason::MigEnabled { gpu: gpu.uuid.clone() })
            }
            Selected::Entry(entry) if entry.is_shared() => shared(gpu, entry, inventory),
            Selected::Entry(entry) => Target::Exclusive { resource: entry.resource.clone() },
            Selected::Twice => Target::Refused(Reason::SelectedTwice { gpu: gpu.uuid.clone() }),
            Selected::Nobody => Target::Exclusive { resource: config.exclusive_resource.clone() },
        })
        .collect();
    let targets = refuse_same_directory(targets, inventory);
    let targets = refuse_long_lists(targets, inventory);
    (targets, refusals)
}

enum Selected<'a> {
    Nobody,
    Entry(&'a SharedResource),
    Twice,
}

/// Lists go first, then counts, then `all`, so that `all` means "all others".
fn select<'a>(config: &'a NodeConfig, inventory: &Inventory) -> (Vec<Selected<'a>>, Vec<Reason>) {
    let mut selected: Vec<Selected<'a>> = inventory.gpus.iter().map(|_| Selected::Nobody).collect();
    let mut refusals = Vec::new();
    for entry in &config.sharing {
        if let DeviceSelector::Listed(refs) = &entry.devices {
            for device in refs {
                let place = inventory.gpus.iter().position(|gpu| names(device, gpu));
                match place.and_then(|place| selected.get_mut(place)) {
                    Some(slot @ Selected::Nobody) => *slot = Selected::Entry(entry),
                    Some(slot) => *slot = Selected::Twice,
                    None => refusals.push(nothing_selected(entry, &describe(device), inventory)),
                }
            }
        }
    }
    for entry in &config.sharing {
        let wanted = match entry.devices {
            DeviceSelector::Count(count) => usize::try_from(count).unwrap_or(usize::MAX),
            DeviceSelector::All | DeviceSelector::Listed(_) => continue,
        };
        let taken = take(&mut selected, entry, wanted);
        if taken < wanted {
            refusals.push(nothing_selected(entry, &format!("{wanted} cards"), inventory));
        }
    }
    for entry in &config.sharing {
        if entry.devices == DeviceSelector::All
            && take(&mut selected, entry, usize::MAX) == 0
            && !inventory.gpus.is_empty()
        {
            refusals.push(nothing_selected(entry, "all", inventory));
        }
    }
    (selected, refusals)
}

fn take<'a>(selected: &mut [Selected<'a>], entry: &'a SharedResource, wanted: usize) -> usize {
    let open = selected.iter_mut().filter(|slot| matches!(slot, Selected::Nobody));
    open.take(wanted).map(|slot| *slot = Selected::Entry(entry)).count()
}

fn names(device: &DeviceRef, gpu: &Gpu) -> bool {
    match device {
        DeviceRef::Index(index) => gpu.index == *index,
        DeviceRef::Uuid(uuid) => gpu.uuid == *uuid,
    }
}

fn describe(device: &DeviceRef) -> String {
    match device {
        DeviceRef::Index(index) => format!("index {index}"),
        DeviceRef::Uuid(uuid) => uuid.to_string(),
    }
}

fn nothing_selected(entry: &SharedResource, wanted: &str, inventory: &Inventory) -> Reason {
    Reason::NothingSelected {
        resource: entry.resource.clone(),
        wanted: wanted.to_owned(),
        cards: inventory.gpus.len(),
    }
}

/// Checks a sharing wish against what the card and the driver can do.
fn shared(gpu: &Gpu, entry: &SharedResource, inventory: &Inventory) -> Target {
    let uuid = gpu.uuid.clone();
    let Some(profile) = VersionProfile::of(&inventory.driver) else {
        return Target::Refused(Reason::DriverTooOld { driver: inventory.driver.clone() });
    };
    if gpu.compute_capability < ComputeCapability::VOLTA {
        return Target::Refused(Reason::NoMemoryIsolation {
            gpu: uuid,
            model: gpu.model.clone(),
            capability: gpu.compute_capability,
        });
    }
    let cap = profile.client_cap(gpu.compute_capability);
    match entry.cut {
        Cut::Replicas(replicas) => in_parts(gpu, &entry.resource, replicas, cap),
        Cut::Memory(units) => in_amounts(gpu, &entry.resource, units, cap),
    }
}

/// Units that are equal parts of the card.
fn in_parts(gpu: &Gpu, resource: &ResourceName, replicas: u32, cap: u32) -> Target {
    let uuid = gpu.uuid.clone();
    if replicas > cap {
        return Target::Refused(Reason::AboveClientCap { gpu: uuid, replicas, cap });
    }
    let unit =
        Share { memory: gpu.memory.split(replicas), percent: ThreadPercent::FULL.split(replicas) };
    if unit.memory < MINIMUM_UNIT {
        return Target::Refused(Reason::UnitTooSmall {
            gpu: uuid,
            unit: unit.memory,
            minimum: MINIMUM_UNIT,
            replicas: u32::try_from(gpu.memory.pieces_of(MINIMUM_UNIT)).unwrap_or(u32::MAX),
        });
    }
    Target::Shared(SharedTarget {
        resource: resource.clone(),
        replicas,
        unit,
        kind: UnitKind::Replica,
        usable: gpu.memory,
        most_shares: cap,
    })
}

/// Units that are amounts of memory: as many as this card has, whatever others have. More of them
/// than the card takes clients are of use, since a container takes several.
fn in_amounts(gpu: &Gpu, resource: &ResourceName, units: MemoryUnits, cap: u32) -> Target {
    let usable = gpu.memory.saturating_sub(units.reserve);
    let count = u32::try_from(usable.pieces_of(units.unit)).unwrap_or(u32::MAX);
    if count == 0 {
        let (gpu, unit) = (gpu.uuid.clone(), units.unit);
        return Target::Refused(Reason::UnitAboveCard { gpu, unit, usable });
    }
    Target::Shared(SharedTarget {
        resource: resource.clone(),
        replicas: count,
        unit: Share { memory: units.unit, percent: ThreadPercent::FULL },
        kind: UnitKind::Memory,
        usable,
        most_shares: cap,
    })
}

/// Two cards whose UUIDs begin alike would share a directory: the later one is refused.
fn refuse_same_directory(targets: Vec<Target>, inventory: &Inventory) -> Vec<Target> {
    let first_of =
        |gpu: &Gpu| inventory.gpus.iter().find(|other| other.uuid.short() == gpu.uuid.short());
    let check = |(gpu, target): (&Gpu, Target)| match first_of(gpu) {
        Some(first) if first.uuid != gpu.uuid => Target::Refused(Reason::SameDirectory {
            gpu: gpu.uuid.clone(),
            other: first.uuid.clone(),
        }),
        Some(_) | None => target,
    };
    inventory.gpus.iter().zip(targets).map(check).collect()
}
