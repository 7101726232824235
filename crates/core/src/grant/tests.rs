mod memory;

use proptest::prelude::*;

use super::*;
use crate::plan::UnitState;
use crate::testing::{config, held, inventory, replica, resource, uuid};

fn ask(replicas: u32, live: &[LiveShare], ids: &[DeviceId]) -> Result<Grant, Reason> {
    grant(&config(replicas), &inventory(), live, &resource("nvidia.com/gpu"), ids)
}

#[test]
fn n_units_are_n_times_the_memory_and_the_threads() {
    let one = ask(4, &[], &[replica(0, 0)]).unwrap().shares[0].share;
    let two = ask(4, &[], &[replica(0, 3), replica(0, 1)]).unwrap().shares[0].share;
    assert_eq!((one.memory.mib(), one.percent.tenths()), (3840, 250));
    assert_eq!((two.memory.mib(), two.percent.tenths()), (7680, 500));
}

#[test]
fn all_units_are_the_whole_card() {
    let ids: Vec<DeviceId> = (0..3).map(|n| replica(0, n)).collect();
    let share = ask(3, &[], &ids).unwrap().shares[0].share;
    assert_eq!((share.memory.mib(), share.percent.tenths()), (15360, 1000));
}

#[test]
fn units_of_two_cards_are_refused_with_what_each_has_free() {
    let reason = ask(4, &[held(&[replica(0, 2)], 3840, 250)], &[replica(0, 0), replica(1, 0)]);
    let Err(Reason::SpansGpus { asked: 2, free }) = reason else { panic!("{reason:?}") };
    assert_eq!(free, [(uuid(0), 3), (uuid(1), 4)]);
}

#[test]
fn two_whole_cards_are_granted_to_one_container() {
    let ids = [DeviceId::whole(uuid(0)), DeviceId::whole(uuid(1))];
    assert_eq!(ask(1, &[], &ids).unwrap().shares.len(), 2);
}

#[test]
fn an_id_of_a_former_cut_counts_as_one_unit_of_the_present_one() {
    let share = ask(2, &[], &[replica(0, 3)]).unwrap().shares[0].share;
    assert_eq!(share.memory.mib(), 7680);
}

#[test]
fn the_ids_of_an_ended_owner_are_granted_anew_at_todays_size() {
    let live = [held(&[replica(0, 3)], 3840, 250), held(&[replica(0, 1)], 3840, 250)];
    let grant = ask(2, &live, &[replica(0, 3)]).unwrap();
    assert_eq!(grant.shares[0].share.memory.mib(), 7680);
    assert_eq!(grant.live.len(), 2);
}

#[test]
fn an_id_that_is_held_under_another_resource_is_nobody_s_to_take() {
    let live = [held(&[replica(0, 0)], 7680, 500)];
    let mut renamed = config(2);
    renamed.sharing[0].resource = resource("nvidia.com/gpu.shared");
    let name = resource("nvidia.com/gpu.shared");
    let reason = grant(&renamed, &inventory(), &live, &name, &[replica(0, 0)]).unwrap_err();
    assert_eq!(reason.code(), "WaitingForShares");
}

#[test]
fn what_live_shares_leave_no_room_for_is_refused_with_numbers() {
    let live = [held(&[replica(0, 0)], 7680, 500), held(&[replica(0, 1)], 3840, 250)];
    let reason = ask(2, &live, &[replica(0, 7)]).unwrap_err();
    assert_eq!(reason.code(), "NotEnoughLeft");
    assert!(reason.to_string().contains("3840 MiB left"), "{reason}");
}

#[test]
fn more_than_one_unit_is_refused_only_where_the_config_says_so() {
    let mut wish = config(4);
    wish.large_requests = LargeRequests::Refuse;
    let ids = [replica(0, 0), replica(0, 1)];
    let name = resource("nvidia.com/gpu");
    assert_eq!(grant(&wish, &inventory(), &[], &name, &ids), Err(Reason::OneUnitOnly { asked: 2 }));
    assert!(grant(&wish, &inventory(), &[], &name, &ids[..1]).is_ok());
}

#[test]
fn unknown_ids_and_empty_requests_are_refused() {
    assert_eq!(ask(2, &[], &[]).unwrap_err(), Reason::EmptyRequest);
    assert_eq!(ask(2, &[], &[replica(9, 0)]).unwrap_err().code(), "UnknownDevice");
}

/// One thing that happens on a node.
#[derive(Debug, Clone)]
enum Step {
    Reconfigure(u32),
    /// A kubelet hands out ids, healthy by our word or not.
    Ask(Vec<(u32, u32)>),
    End(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1u32..12).prop_map(Step::Reconfigure),
        proptest::collection::vec((0u32..2, 0u32..12), 1..5).prop_map(Step::Ask),
        (0usize..8).prop_map(Step::End),
    ]
}

proptest! {
    #[test]
    fn live_shares_never_sum_to_more_than_their_card(steps in proptest::collection::vec(step(), 1..60)) {
        let (mut replicas, mut live) = (2, Vec::new());
        for step in steps {
            match step {
                Step::Reconfigure(n) => replicas = n,
                Step::End(at) => { if at < live.len() { live.remove(at); } }
                Step::Ask(ids) => {
                    let ids: Vec<DeviceId> = ids.iter().map(|(g, n)| replica(*g, *n)).collect();
                    if let Ok(grant) = ask(replicas, &live, &ids) { live = grant.live; }
                }
            }
            for gpu in &inventory().gpus {
                let mine: Vec<_> = live.iter().filter(|l: &&LiveShare| l.gpu == gpu.uuid).collect();
                prop_assert!(mine.iter().map(|l| l.share.memory).sum::<Memory>() <= gpu.memory);
                prop_assert!(mine.iter().map(|l| l.share.percent.tenths()).sum::<u32>() <= 1000);
            }
        }
    }

    /// What the kubelet is told is free can be granted, one unit after the other.
    #[test]
    fn every_free_unit_can_be_granted(before in 1u32..12, taken in 0u32..12, after in 1u32..12) {
        let mut live = Vec::new();
        for n in 0..taken.min(before) {
            if let Ok(grant) = ask(before, &live, &[replica(0, n)]) { live = grant.live; }
        }
        let node = plan(&config(after), &inventory(), &live);
        for unit in node.gpus[0].units.iter().filter(|unit| unit.state == UnitState::Free) {
            let grant = ask(after, &live, std::slice::from_ref(&unit.id));
            prop_assert!(grant.is_ok(), "{:?}", grant);
            live = grant.unwrap().live;
        }
    }
}
