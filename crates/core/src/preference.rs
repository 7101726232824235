//! Which ids the kubelet should hand out first.
//!
//! Units of one request come from one card, because a CUDA process reaches one MPS daemon only.
//! The answer is advice: the kubelet tops it up at random when it is short, and then
//! [`crate::grant()`] refuses with the numbers. It also offers ids whose last owner has ended in
//! this moment and whose share was of another size; so a choice is tried before it is made.
//!
//! The kubelet doesn't say for whom it asks. Where just so many units were planned on a card and
//! nobody has taken them yet, that card comes first: whoever it is for, amounts end up where they
//! were planned. What is planned for others is left free as long as it can be.

use std::collections::BTreeSet;

use crate::{AllocationPolicy, DeviceId, GpuPlan, GpuUuid, NodePlan, UnitState};

/// Units that a scheduler has planned for a container, and that nobody has taken yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// How many.
    pub units: u64,
    /// Of which card.
    pub gpu: GpuUuid,
}

/// A request of the kubelet for advice.
#[derive(Debug, Clone, Copy)]
pub struct Choice<'a> {
    /// Ids that the kubelet counts as free.
    pub available: &'a [DeviceId],
    /// Ids that have to be in the answer.
    pub required: &'a [DeviceId],
    /// How many ids are wanted in all.
    pub size: usize,
    /// What was planned of the resource, for the first to come first.
    pub slots: &'a [Slot],
}

impl Choice<'_> {
    /// How well a card with so much room serves what was planned; less is better.
    fn rank(&self, gpu: &GpuUuid, room: usize) -> Rank {
        let is_for = |slot: &Slot| slot.gpu == *gpu && usize::try_from(slot.units) == Ok(self.size);
        if let Some(place) = self.slots.iter().position(is_for) {
            return Rank::Planned(place);
        }
        let here = self.slots.iter().filter(|slot| slot.gpu == *gpu);
        let for_others = here.map(|slot| slot.units).fold(0, u64::saturating_add);
        let left = u64::try_from(room).unwrap_or(u64::MAX).saturating_sub(for_others);
        if u64::try_from(self.size).is_ok_and(|size| size <= left) {
            Rank::Free
        } else {
            Rank::PlannedForOthers
        }
    }
}

/// The order in which cards are taken, before the policy's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// As much is planned there, in the slot at this place.
    Planned(usize),
    /// What is planned fits beside it.
    Free,
    /// Takes from what is planned.
    PlannedForOthers,
}

/// Picks `size` of the available ids; none where no card has enough. `is_granted` tells whether a
/// request for these ids would be granted now.
pub fn prefer(
    node: &NodePlan,
    policy: AllocationPolicy,
    choice: Choice<'_>,
    is_granted: impl Fn(&[DeviceId]) -> bool,
) -> Vec<DeviceId> {
    let Choice { available, required, size, .. } = choice;
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
    candidates.sort_by_key(|candidate| choice.rank(&candidate.plan.gpu, candidate.room));
    let mut picks: Vec<Vec<DeviceId>> = candidates
        .iter()
        .map(|candidate| take(required, candidate.ids.iter().copied().cloned(), size))
        .collect();
    picks.extend(whole_cards(node, available, required, size));
    // Where none would be granted, the first one gets the refusal that says why.
    let place = picks.iter().position(|ids| is_granted(ids)).unwrap_or(0);
    picks.into_iter().nth(place).unwrap_or_default()
}

struct Candidate<'a> {
    plan: &'a GpuPlan,
    ids: Vec<&'a DeviceId>,
    room: usize,
}

impl<'a> Candidate<'a> {
    fn of(plan: &'a GpuPlan, available: &'a [DeviceId]) -> Option<Self> {
        let mut ids: Vec<&DeviceId> = available.iter().filter(|id| *id.gpu() == plan.gpu).collect();
        // Free by the plan first: what the kubelet alone counts as free may be of another size.
        let free = plan.units.iter().filter(|unit| unit.state == UnitState::Free);
        let free: BTreeSet<&DeviceId> = free.map(|unit| &unit.id).collect();
        ids.sort_by_key(|id| (!free.contains(id), *id));
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
) -> Option<Vec<DeviceId>> {
    let whole = node.gpus.iter().filter(|plan| !plan.is_shared());
    let ids: Vec<&DeviceId> =
        whole.filter_map(|plan| available.iter().find(|id| *id.gpu() == plan.gpu)).collect();
    (ids.len() >= size).then(|| take(required, ids.into_iter().cloned(), size))
}

fn take(required: &[DeviceId], ids: impl Iterator<Item = DeviceId>, size: usize) -> Vec<DeviceId> {
    let rest = ids.filter(|id| !required.contains(id));
    required.iter().cloned().chain(rest).take(size).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceSelector;
    use crate::plan::plan;
    use crate::testing::{config, held, inventory, replica};

    fn picked(policy: AllocationPolicy, available: &[DeviceId], size: usize) -> Vec<DeviceId> {
        let node = plan(&config(4), &inventory(), &[]);
        prefer(&node, policy, Choice { available, required: &[], size, slots: &[] }, |_| true)
    }

    #[test]
    fn a_card_that_would_refuse_is_passed_over() {
        let node = plan(&config(4), &inventory(), &[]);
        let available = [replica(0, 0), replica(1, 0)];
        let choice = Choice { available: &available, required: &[], size: 1, slots: &[] };
        let not_the_first = |ids: &[DeviceId]| ids != [replica(0, 0)];
        let policy = AllocationPolicy::Distributed;
        assert_eq!(prefer(&node, policy, choice, not_the_first), [replica(1, 0)]);
        assert_eq!(prefer(&node, policy, choice, |_| false), [replica(0, 0)], "to be told why");
    }

    #[test]
    fn a_whole_card_is_taken_where_every_shared_one_would_refuse() {
        let mut sharing = config(4);
        sharing.sharing[0].devices = DeviceSelector::Count(1);
        let node = plan(&sharing, &inventory(), &[]);
        let whole = DeviceId::whole(inventory().gpus[1].uuid.clone());
        let available = [replica(0, 0), whole.clone()];
        let choice = Choice { available: &available, required: &[], size: 1, slots: &[] };
        let policy = AllocationPolicy::Packed;
        assert_eq!(prefer(&node, policy, choice, |_| true), [replica(0, 0)]);
        let picked = prefer(&node, policy, choice, |ids| ids.contains(&whole));
        assert_eq!(picked, std::slice::from_ref(&whole));
    }

    #[test]
    fn ids_that_are_free_by_the_plan_come_before_those_of_ended_owners() {
        let live = [held(&[replica(0, 0)], 3840, 250)];
        let node = plan(&config(4), &inventory(), &live);
        let available = [replica(0, 0), replica(0, 2)];
        let choice = Choice { available: &available, required: &[], size: 1, slots: &[] };
        assert_eq!(prefer(&node, AllocationPolicy::Packed, choice, |_| true), [replica(0, 2)]);
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
        assert_eq!(picked(AllocationPolicy::Packed, &available, 1), [replica(1, 0)]);
        assert_eq!(picked(AllocationPolicy::Distributed, &available, 1), [replica(0, 1)]);
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
        let choice = Choice { available: &available, required: &required, size: 2, slots: &[] };
        let ids = prefer(&node, AllocationPolicy::Packed, choice, |_| true);
        assert_eq!(ids, [replica(1, 3), replica(1, 2)]);
    }

    fn steered(slots: &[Slot], available: &[DeviceId], size: usize) -> Vec<DeviceId> {
        let node = plan(&config(4), &inventory(), &[]);
        let choice = Choice { available, required: &[], size, slots };
        prefer(&node, AllocationPolicy::Packed, choice, |_| true)
    }

    fn slot(units: u64, gpu: usize) -> Slot {
        Slot { units, gpu: inventory().gpus[gpu].uuid.clone() }
    }

    #[test]
    fn the_card_that_was_planned_for_as_much_comes_first() {
        let available = [replica(0, 0), replica(0, 1), replica(1, 0), replica(1, 1)];
        assert_eq!(steered(&[], &available, 1), [replica(0, 0)], "without a plan");
        let slots = [slot(2, 0), slot(1, 1), slot(1, 0)];
        assert_eq!(steered(&slots, &available, 1), [replica(1, 0)]);
        assert_eq!(steered(&slots, &available, 2), [replica(0, 0), replica(0, 1)]);
        let only_the_other = [replica(0, 3)];
        assert_eq!(steered(&slots, &only_the_other, 1), [replica(0, 3)], "it is full by now");
    }

    #[test]
    fn who_comes_without_a_plan_leaves_what_is_planned_for_others() {
        let available = [replica(0, 0), replica(0, 1), replica(1, 0), replica(1, 1)];
        assert_eq!(steered(&[slot(2, 0)], &available, 1), [replica(1, 0)]);
        let everywhere = [slot(2, 0), slot(2, 1)];
        assert_eq!(steered(&everywhere, &available, 1), [replica(0, 0)], "better than nothing");
    }
}
