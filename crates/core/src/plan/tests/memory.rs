//! Cards that are cut into amounts of memory.

use super::{limits_of, states};
use crate::plan::{Hosting, UnitKind, UnitState, plan};
use crate::testing::{config, gpu, held, inventory, memory_config, replica, resource};
use crate::{Inventory, LiveShare, Memory, Reason, ThreadPercent};

/// `units` units of a GiB each, of one container.
fn gib(gpu: u32, units: std::ops::Range<u32>) -> LiveShare {
    let ids: Vec<_> = units.map(|n| replica(gpu, n)).collect();
    let mib = 1024 * u64::try_from(ids.len()).unwrap();
    LiveShare { resource: resource("aliyun.com/gpu-mem"), ..held(&ids, mib, 1000) }
}

fn cards(mib: &[u64]) -> Inventory {
    let gpus = (0..).zip(mib).map(|(index, mib)| gpu(index, *mib)).collect();
    Inventory { gpus, ..inventory() }
}

#[test]
fn each_card_has_as_many_units_as_fit_into_it() {
    let sizes = [15109, 16130, 12282, 23028];
    let node = plan(&memory_config(1024, 0), &cards(&sizes), &[]);
    let units: Vec<u32> = node.gpus.iter().map(|gpu| gpu.replicas).collect();
    assert_eq!(units, [14, 15, 11, 22], "as the ACK document counts them");
    let first = &node.gpus[0];
    assert_eq!(first.generation.as_str(), "mps/aliyun.com/gpu-mem/14x1024M@100.0");
    assert_eq!((first.kind, first.is_shared()), (Some(UnitKind::Memory), true));
    let unit = first.unit.unwrap();
    assert_eq!((unit.memory.mib(), unit.percent), (1024, ThreadPercent::FULL));
    assert!(first.units.iter().all(|unit| unit.state == UnitState::Free));
}

#[test]
fn a_card_of_a_single_unit_is_shared_all_the_same() {
    let node = plan(&memory_config(1024, 0), &cards(&[2047]), &[]);
    assert!(node.gpus[0].is_shared());
    assert!(matches!(node.gpus[0].hosting, Hosting::Mps { .. }));
}

#[test]
fn a_reserve_is_in_no_unit() {
    let node = plan(&memory_config(1024, 512), &cards(&[15360]), &[gib(0, 0..14)]);
    let first = &node.gpus[0];
    assert_eq!((first.replicas, first.free, first.left), (14, 0, Memory::from_mib(512)));
    assert_eq!(first.reason, None);
}

#[test]
fn a_card_without_room_for_a_unit_is_refused_alone() {
    let node = plan(&memory_config(8192, 8000), &cards(&[16000, 24000]), &[]);
    let reason = node.gpus[0].reason.clone().unwrap();
    assert_eq!(reason.code(), "UnitAboveCard");
    assert!(reason.to_string().contains("8000 MiB to share"), "{reason}");
    assert_eq!(node.gpus[1].free, 1);
}

#[test]
fn more_units_than_mps_clients_are_fine_and_as_many_containers_are_not() {
    let node = plan(&memory_config(1024, 0), &cards(&[143_771]), &[]);
    assert_eq!((node.gpus[0].free, node.gpus[0].reason.clone()), (140, None));

    let live: Vec<LiveShare> = (0..48).map(|n| gib(0, n..n + 1)).collect();
    let full = plan(&memory_config(1024, 0), &cards(&[143_771]), &live);
    assert_eq!(full.gpus[0].free, 0);
    assert!(matches!(full.gpus[0].reason, Some(Reason::NoClientLeft { shares: 48, cap: 48, .. })));
    let fewer = plan(&memory_config(1024, 0), &cards(&[143_771]), &live[1..]);
    assert_eq!((fewer.gpus[0].free, fewer.gpus[0].reason.clone()), (93, None));
}

#[test]
fn the_default_limit_is_the_largest_share_with_all_threads() {
    let live = [gib(0, 0..7), gib(0, 7..9)];
    let limits = limits_of(&plan(&memory_config(1024, 0), &inventory(), &live).gpus[0]);
    assert_eq!((limits.memory.mib(), limits.percent), (7168, ThreadPercent::FULL));
}

#[test]
fn replicas_that_live_on_keep_the_card_until_they_end() {
    let live = [held(&[replica(0, 0)], 7680, 500)];
    let node = plan(&memory_config(1024, 0), &inventory(), &live);
    let first = &node.gpus[0];
    assert_eq!(first.free, 0);
    assert!(matches!(first.reason, Some(Reason::WaitingForShares { shares: 1, .. })));
    assert!(
        matches!(&first.hosting, Hosting::Mps { resource, .. } if resource.as_str() == "nvidia.com/gpu")
    );
    assert_eq!(node.gpus[1].free, 32, "the card without shares switches at once");
}

#[test]
fn memory_shares_that_live_on_keep_the_card_until_they_end() {
    let node = plan(&config(2), &inventory(), &[gib(0, 0..7)]);
    assert_eq!((node.gpus[0].free, node.gpus[1].free), (0, 2));
    assert!(matches!(node.gpus[0].reason, Some(Reason::WaitingForShares { .. })));
    let held = states(&node.gpus[0]).into_iter().filter(|(_, state)| *state == UnitState::Held);
    assert_eq!(held.count(), 7);
}

#[test]
fn another_unit_offers_what_the_live_shares_leave() {
    let node = plan(&memory_config(2048, 0), &inventory(), &[gib(0, 0..7)]);
    // 15,360 MiB hold seven units of 2 GiB, of which 8,192 MiB back four.
    assert_eq!((node.gpus[0].replicas, node.gpus[0].free), (7, 4));
}

#[test]
fn a_list_that_no_kubelet_takes_is_refused_with_its_length_and_a_unit_that_fits() {
    let eight_h200 = cards(&[143_771; 8]);
    let at = |unit| plan(&memory_config(unit, 0), &eight_h200, &[]);
    let node = at(16);
    let Some(Reason::DeviceListTooLong { units, bytes, limit, unit, .. }) = node.gpus[0].reason
    else {
        panic!("{:?}", node.gpus[0].reason)
    };
    assert_eq!((units, limit), (8 * 8985, 4_194_304));
    assert!(bytes > limit, "{bytes}");
    assert!(node.gpus.iter().all(|gpu| gpu.free == 0));
    assert_eq!(at(unit.mib()).gpus[7].reason, None, "{unit} is said to fit");
}

#[test]
fn the_length_of_a_list_is_not_underestimated() {
    // Published: 68,700 units or so are the most (facts/aliyun-gpushare.md 3.2).
    let most = |units: u64| plan(&memory_config(1, 0), &cards(&[units]), &[]).gpus[0].replicas;
    assert_eq!(most(50_000), 50_000);
    assert_eq!(most(68_700), 0);
}
