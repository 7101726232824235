mod drain;
mod memory;

use super::*;
use crate::config::{Cut, DeviceRef, DeviceSelector, SharedResource};
use crate::testing::{config, gpu, held, inventory, replica, resource, uuid};
use crate::{ComputeCapability, MigMode};

fn states(plan: &GpuPlan) -> Vec<(String, UnitState)> {
    let number = |id: &DeviceId| id.to_string().rsplit(':').next().unwrap().to_owned();
    plan.units.iter().map(|unit| (number(&unit.id), unit.state)).collect()
}

fn limits_of(plan: &GpuPlan) -> Limits {
    let Hosting::Mps { limits, .. } = &plan.hosting else { panic!("{:?}", plan.hosting) };
    *limits
}

#[test]
fn an_idle_card_offers_equal_units_that_sum_to_no_more_than_the_card() {
    let node = plan(&config(2), &inventory(), &[]);
    let first = &node.gpus[0];
    assert_eq!(first.generation.as_str(), "mps/nvidia.com/gpu/2x7680M@50.0");
    assert_eq!(states(first), [("0".into(), UnitState::Free), ("1".into(), UnitState::Free)]);
    assert_eq!(limits_of(first).memory, Memory::from_mib(7680));
    assert_eq!(node.gpus[1].unit.unwrap().memory, Memory::from_mib(16384));
}

#[test]
fn one_replica_is_the_whole_card_without_mps() {
    let node = plan(&config(1), &inventory(), &[]);
    assert_eq!(node.gpus[0].hosting, Hosting::Exclusive);
    assert_eq!(node.gpus[0].units[0].id, DeviceId::whole(uuid(0)));
}

#[test]
fn a_finer_cut_beside_a_live_larger_share_offers_what_is_left() {
    let live = [held(&[replica(0, 0)], 7680, 500)];
    let node = plan(&config(4), &inventory(), &live);
    let first = &node.gpus[0];
    assert_eq!(
        states(first),
        [
            ("0".into(), UnitState::Held),
            ("1".into(), UnitState::Free),
            ("2".into(), UnitState::Free),
            ("3".into(), UnitState::Unbacked)
        ]
    );
    assert!(matches!(first.reason, Some(Reason::UnitsNotBacked { units: 1, .. })));
    assert_eq!(limits_of(first).memory, Memory::from_mib(7680), "the largest live share");
}

#[test]
fn a_coarser_cut_keeps_the_live_id_that_it_has_no_room_for() {
    let live = [held(&[replica(0, 3)], 3840, 250)];
    let node = plan(&config(2), &inventory(), &live);
    assert_eq!(
        states(&node.gpus[0]),
        [
            ("0".into(), UnitState::Free),
            ("1".into(), UnitState::Unbacked),
            ("3".into(), UnitState::Held)
        ]
    );
}

#[test]
fn threads_can_be_what_runs_out() {
    let live = [held(&[replica(0, 0)], 512, 900)];
    let node = plan(&config(4), &inventory(), &live);
    assert_eq!(node.gpus[0].free, 0);
}

#[test]
fn limits_follow_a_request_of_several_units() {
    let live = [held(&[replica(0, 0), replica(0, 1)], 7680, 500)];
    let limits = limits_of(&plan(&config(4), &inventory(), &live).gpus[0]);
    assert_eq!((limits.memory.mib(), limits.percent.tenths()), (7680, 500));
}

#[test]
fn a_card_that_is_hosted_for_shares_of_another_kind_has_another_generation() {
    let generation = |replicas, live: &[LiveShare]| {
        plan(&config(replicas), &inventory(), live).gpus[0].generation.to_string()
    };
    let live = [held(&[replica(0, 0)], 7680, 500)];
    assert_eq!(generation(1, &live), "exclusive/nvidia.com/gpu after nvidia.com/gpu");
    assert_eq!(generation(1, &[]), "exclusive/nvidia.com/gpu");
    assert_eq!(generation(4, &live), generation(4, &[]), "it is one daemon");
}

#[test]
fn going_exclusive_waits_for_live_shares_and_keeps_their_daemon() {
    let live = [held(&[replica(0, 0)], 7680, 500)];
    let node = plan(&config(1), &inventory(), &live);
    let first = &node.gpus[0];
    assert_eq!(first.free, 0);
    assert!(matches!(first.hosting, Hosting::Mps { .. }));
    assert!(matches!(first.reason, Some(Reason::WaitingForShares { shares: 1, .. })));
}

#[test]
fn sharing_waits_for_a_live_whole_card() {
    let mut whole = held(&[DeviceId::whole(uuid(0))], 15360, 1000);
    whole.mode = Mode::Exclusive;
    let node = plan(&config(2), &inventory(), &[whole]);
    assert_eq!(node.gpus[0].hosting, Hosting::Exclusive);
    assert_eq!(node.gpus[0].free, 0);
}

#[test]
fn a_renamed_resource_waits_for_shares_of_the_old_name() {
    let mut wish = config(2);
    wish.sharing[0].resource = resource("nvidia.com/gpu.shared");
    let live = [held(&[replica(0, 0)], 7680, 500)];
    let first = &plan(&wish, &inventory(), &live).gpus[0];
    assert_eq!(first.free, 0);
    assert!(
        matches!(&first.hosting, Hosting::Mps { resource, .. } if resource.as_str() == "nvidia.com/gpu")
    );
}

#[test]
fn shared_and_whole_cards_live_on_one_node() {
    let mut wish = config(4);
    wish.sharing[0].devices = DeviceSelector::Listed(vec![DeviceRef::Index(1)]);
    let node = plan(&wish, &inventory(), &[]);
    assert_eq!(node.gpus[0].hosting, Hosting::Exclusive);
    assert_eq!(node.gpus[1].replicas, 4);
}

#[test]
fn a_count_takes_the_first_cards_that_no_list_names() {
    let mut wish = config(2);
    wish.sharing[0].devices = DeviceSelector::Count(1);
    wish.sharing.push(SharedResource {
        devices: DeviceSelector::Listed(vec![DeviceRef::Uuid(uuid(0))]),
        cut: Cut::Replicas(8),
        ..wish.sharing[0].clone()
    });
    let node = plan(&wish, &inventory(), &[]);
    assert_eq!((node.gpus[0].replicas, node.gpus[1].replicas), (8, 2));
}

#[test]
fn an_entry_that_matches_nothing_is_reported() {
    let mut wish = config(2);
    wish.sharing[0].devices = DeviceSelector::Listed(vec![DeviceRef::Index(7)]);
    let node = plan(&wish, &inventory(), &[]);
    assert!(matches!(node.refusals[..], [Reason::NothingSelected { cards: 2, .. }]));
}

fn refused(change: impl Fn(&mut Gpu), replicas: u32) -> Reason {
    let mut cards = inventory();
    change(&mut cards.gpus[0]);
    let node = plan(&config(replicas), &cards, &[]);
    assert_eq!(node.gpus[0].free, 0);
    assert!(node.gpus[1].free > 0, "the other card works");
    node.gpus[0].reason.clone().unwrap()
}

#[test]
fn a_card_that_cannot_be_shared_is_refused_alone() {
    let pre_volta =
        |gpu: &mut Gpu| gpu.compute_capability = ComputeCapability { major: 6, minor: 1 };
    assert_eq!(refused(pre_volta, 2).code(), "NoMemoryIsolation");
    assert_eq!(refused(|gpu| gpu.mig = MigMode::Enabled, 2).code(), "MigEnabled");
    assert_eq!(refused(|gpu| gpu.memory = Memory::from_mib(4096), 10).code(), "UnitTooSmall");
}

#[test]
fn the_client_cap_depends_on_the_driver() {
    let mut cards = Inventory { gpus: vec![gpu(0, 81920)], ..inventory() };
    let at =
        |cards: &Inventory, replicas| plan(&config(replicas), cards, &[]).gpus[0].reason.clone();
    assert_eq!(at(&cards, 48), None);
    assert!(matches!(at(&cards, 49), Some(Reason::AboveClientCap { cap: 48, .. })));
    cards.driver = "590.44.01".parse().unwrap();
    assert_eq!(at(&cards, 60), None);
    assert!(matches!(at(&cards, 61), Some(Reason::AboveClientCap { cap: 60, .. })));
}

#[test]
fn a_refused_card_keeps_serving_its_live_shares() {
    let live = [held(&[replica(0, 0)], 7680, 500)];
    let first = &plan(&config(49), &inventory(), &live).gpus[0];
    assert!(matches!(first.hosting, Hosting::Mps { .. }));
    assert_eq!(states(first), [("0".into(), UnitState::Held)]);
}

#[test]
fn the_later_of_two_cards_with_one_directory_is_refused() {
    let mut twin = gpu(1, 15360);
    twin.uuid = format!("{}-ffff", uuid(0).short()).parse().unwrap();
    let cards = Inventory { gpus: vec![gpu(0, 15360), twin], ..inventory() };
    let node = plan(&config(2), &cards, &[]);
    assert_eq!(node.gpus[0].reason, None);
    assert_eq!(node.gpus[1].reason.as_ref().unwrap().code(), "SameDirectory");
}
