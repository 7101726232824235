//! Whether the device list of a resource is one that a kubelet takes.
//!
//! A list crosses in one gRPC message with an entry per unit of all cards, and a kubelet receives
//! 4 MiB at most. Of a longer one it drops the connection, and all units of the resource with it
//! (facts/aliyun-gpushare.md 3.2).

use super::target::Target;
use crate::{Gpu, Inventory, Reason, ResourceName};

/// The largest message that a kubelet takes, in bytes.
const MESSAGE_LIMIT: u64 = 4 << 20;

/// An entry without its id, in bytes, at most: the entry's own frame (2), the id's (2), `Unhealthy`
/// with its frame (11), a NUMA node with its frames (8).
const ENTRY: u64 = 23;

/// Refuses all cards of a resource whose list would be too long; where only a few were refused, a
/// card that is added would take units away from others.
pub(super) fn refuse_long_lists(targets: Vec<Target>, inventory: &Inventory) -> Vec<Target> {
    let refusals: Vec<Option<Reason>> =
        targets.iter().map(|target| too_long(target, &targets, inventory)).collect();
    let refused =
        |(target, reason): (Target, Option<Reason>)| reason.map_or(target, Target::Refused);
    targets.into_iter().zip(refusals).map(refused).collect()
}

fn too_long(target: &Target, targets: &[Target], inventory: &Inventory) -> Option<Reason> {
    let Target::Shared(wanted) = target else {
        return None;
    };
    let of_resource = || {
        let cards = inventory.gpus.iter().zip(targets);
        cards.filter(|(_, other)| other.resource() == Some(&wanted.resource))
    };
    let bytes: u64 = of_resource().map(|(gpu, target)| list_bytes(gpu, target)).sum();
    let units: u64 = of_resource().map(|(_, target)| u64::from(target.replicas())).sum();
    (bytes > MESSAGE_LIMIT).then(|| Reason::DeviceListTooLong {
        resource: ResourceName::clone(&wanted.resource),
        units,
        bytes,
        limit: MESSAGE_LIMIT,
        // So many times the unit, so many times fewer of them.
        unit: wanted.unit.memory.times(bytes.div_ceil(MESSAGE_LIMIT)),
    })
}

fn list_bytes(gpu: &Gpu, target: &Target) -> u64 {
    let units = u64::from(target.replicas());
    let digits = u64::from(units.checked_ilog10().unwrap_or(0)) + 1;
    let uuid = u64::try_from(gpu.uuid.as_str().len()).unwrap_or(u64::MAX);
    // The id is `<uuid>::<n>`.
    let id = uuid.saturating_add(2).saturating_add(digits);
    units.saturating_mul(id.saturating_add(ENTRY))
}
