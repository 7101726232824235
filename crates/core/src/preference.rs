//! Which ids the kubelet should hand out first.
//!
//! Units of one request come from one card, because a CUDA process reaches one MPS daemon only.
//! The answer is advice: the kubelet tops it up at random when it is short, and then
//! [`crate::grant()`] refuses with the numbers.

use crate::{AllocationPolicy, DeviceId, GpuPlan, NodePlan};

/// Picks `size` of the `available` ids, all of those in `required` among them; fewer, or none,
/// where no card has enough.
pub fn prefer(
    node: &NodePlan,
    policy: AllocationPolicy,
    available: &[DeviceId],
    required: &[DeviceId],
    size: usize,
) -> Vec<DeviceId> {
    let mut candidates: Vec<Candidate<'_>> = node
        .gpus
        .iter()
        .filter_map(|plan| Candidate::of(plan, available))
        .filter(|candidate| required.iter().all(|id| id.gpu() == &candidate.plan.gpu))
        .filter(|candidate| candidate.plan.is_shared() && candidate.room >= size)
        .collect();
    // Stable: cards of equal room stay in index order.
    match policy {
        AllocationPolicy::Packed => candidates.sort_by_key(|candidate| candidate.room),
        AllocationPolicy::Distributed => {
            candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.room));
        }
    }
    match candidates.first() {
        Some(candidate) => take(required, candidate.ids.iter().copied().cloned(), size),
        None => whole_cards(node, available, required, size),
    }
}

struct Candidate<'a> {
    plan: &'a GpuPlan,
    ids: Vec<&'a DeviceId>,
    room: usize,
}

impl<'a> Candidate<'a> {
    fn of(plan: &'a GpuPlan, available: &'a [DeviceId]) -> Option<Self> {
        let mut ids: Vec<&DeviceId> = available
            .iter()
            .filter(|id| *id.gpu() == plan.gpu)
            .collect();
        ids.sort();
        // An id may have been freed by its pod before we know of it: then the card has more room
        // than the plan says, and the kubelet's view counts.
        let room = ids.len();
        (room > 0).then_some(Self { plan, ids, room })
    }
}

/// Whole cards in index order; a request that wants several gets several.
fn whole_cards(
    node: &NodePlan,
    available: &[DeviceId],
    required: &[DeviceId],
    size: usize,
) -> Vec<DeviceId> {
    let whole = node.gpus.iter().filter(|plan| !plan.is_shared());
    let ids: Vec<&DeviceId> = whole
        .filter_map(|plan| available.iter().find(|id| *id.gpu() == plan.gpu))
        .collect();
    if ids.len() < size {
        Vec::new()
    } else {
        take(required, ids.into_iter().cloned(), size)
    }
}

fn take(required: &[DeviceId], ids: impl Iterator<Item = DeviceId>, size: usize) -> Vec<DeviceId> {
    let rest = ids.filter(|id| !required.contains(id));
    required.iter().cloned().chain(rest).take(size).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::plan;
    use crate::testing::{config, inventory, replica};

    fn picked(policy: AllocationPolicy, available: &[DeviceId], size: usize) -> Vec<DeviceId> {
        let node = plan(&config(4), &inventory(), &[]);
        prefer(&node, policy, available, &[], size)
    }

    #[test]
    fn units_of_one_request_come_from_one_card() {
        let available = [replica(0, 1), replica(1, 0), replica(0, 0), replica(1, 3)];
        let ids = picked(AllocationPolicy::Packed, &available, 2);
        assert_eq!(ids, [replica(0, 0), replica(0, 1)]);
    }

    #[test]
    fn packed_fills_the_fullest_card_and_distributed_the_emptiest() {
        let available = [replica(0, 1), replica(0, 2), replica(1, 0)];
        assert_eq!(
            picked(AllocationPolicy::Packed, &available, 1),
            [replica(1, 0)]
        );
        assert_eq!(
            picked(AllocationPolicy::Distributed, &available, 1),
            [replica(0, 1)]
        );
    }

    #[test]
    fn no_card_with_enough_units_means_no_advice() {
        let available = [replica(0, 1), replica(1, 0)];
        assert_eq!(picked(AllocationPolicy::Packed, &available, 2), []);
    }

    #[test]
    fn ids_that_must_be_in_the_answer_fix_the_card() {
        let node = plan(&config(4), &inventory(), &[]);
        let available = [replica(0, 0), replica(0, 1), replica(1, 2), replica(1, 3)];
        let required = [replica(1, 3)];
        let ids = prefer(&node, AllocationPolicy::Packed, &available, &required, 2);
        assert_eq!(ids, [replica(1, 3), replica(1, 2)]);
    }
}
