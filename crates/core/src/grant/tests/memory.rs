//! Requests for amounts of memory.

use proptest::prelude::*;

use super::{Grant, LiveShare, Reason, grant};
use crate::config::{Cut, MemoryUnits};
use crate::testing::{config, inventory, memory_config, replica, resource};
use crate::{DeviceId, Hosting, LargeRequests, Memory, NodeConfig, ThreadPercent, UnitState, plan};

fn ids(gpu: u32, units: std::ops::Range<u32>) -> Vec<DeviceId> {
    units.map(|n| replica(gpu, n)).collect()
}

fn ask(config: &NodeConfig, live: &[LiveShare], ids: &[DeviceId]) -> Result<Grant, Reason> {
    grant(config, &inventory(), live, &resource("aliyun.com/gpu-mem"), ids)
}

#[test]
fn units_are_exact_amounts_with_all_threads() {
    let config = memory_config(1024, 0);
    let grant = ask(&config, &[], &ids(0, 0..7)).unwrap();
    let share = grant.shares[0].share;
    assert_eq!((share.memory.mib(), share.percent), (7168, ThreadPercent::FULL));
    assert_eq!(grant.memory_units, Some(15));
}

#[test]
fn all_units_of_a_card_are_not_the_rest_of_it_too() {
    let config = memory_config(1000, 0);
    let share = ask(&config, &[], &ids(0, 0..15)).unwrap().shares[0].share;
    assert_eq!(share.memory.mib(), 15_000, "the card has 15,360");
}

#[test]
fn two_times_seven_of_fifteen_fit_and_two_more_are_refused_with_numbers() {
    let config = memory_config(1024, 0);
    let first = ask(&config, &[], &ids(0, 0..7)).unwrap();
    let second = ask(&config, &first.live, &ids(0, 7..14)).unwrap();
    let reason = ask(&config, &second.live, &[replica(0, 14), replica(0, 15)]).unwrap_err();
    assert_eq!(
        reason.to_string(),
        "2 units of 1 GiB asked on `GPU-00000000-0000-0000-0000-000000000000`, 1 can be granted \
         (1 GiB left); hint: ask for less, or wait for a pod on it to end"
    );
    assert!(ask(&config, &second.live, &[replica(0, 14)]).is_ok());
}

#[test]
fn one_unit_only_is_a_rule_about_replicas() {
    let mut config = memory_config(1024, 0);
    config.large_requests = LargeRequests::Refuse;
    assert!(ask(&config, &[], &ids(0, 0..2)).is_ok());
}

#[test]
fn a_container_beyond_the_clients_that_a_card_takes_is_refused() {
    let config = memory_config(256, 0);
    let mut live = Vec::new();
    for n in 0..48 {
        live = ask(&config, &live, &[replica(0, n)]).unwrap().live;
    }
    let reason = ask(&config, &live, &[replica(0, 50)]).unwrap_err();
    assert_eq!(reason.code(), "NoClientLeft");
    assert!(reason.to_string().starts_with("48 containers have shares of"), "{reason}");
}

/// A config of either kind; under one name or two.
fn any_config() -> impl Strategy<Value = NodeConfig> {
    let units = (prop_oneof![Just(512), Just(1000), 1024u64..5000], 0u64..3000).prop_map(
        |(unit, reserve)| {
            let (unit, reserve) = (Memory::from_mib(unit), Memory::from_mib(reserve));
            Cut::Memory(MemoryUnits { unit, reserve })
        },
    );
    let cut = prop_oneof![(1u32..12).prop_map(Cut::Replicas), units];
    (cut, any::<bool>()).prop_map(|(cut, renamed)| {
        let mut config = config(1);
        config.sharing[0].cut = cut;
        if renamed {
            config.sharing[0].resource = resource("aliyun.com/gpu-mem");
        }
        config
    })
}

/// One thing that happens on a node.
#[derive(Debug, Clone)]
enum Step {
    Reconfigure(NodeConfig),
    /// A kubelet hands out ids of a resource, healthy by our word or not.
    Ask(Vec<(u32, u32)>, bool),
    End(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let ids = proptest::collection::vec((0u32..2, 0u32..20), 1..9);
    prop_oneof![
        1 => any_config().prop_map(Step::Reconfigure),
        4 => (ids, any::<bool>()).prop_map(|(ids, renamed)| {
            // Of one card more often than not, or nothing would be granted.
            let first = ids[0].0;
            Step::Ask(ids.into_iter().map(|(_, n)| (first, n)).collect(), renamed)
        }),
        1 => (0usize..8).prop_map(Step::End),
    ]
}

proptest! {
    #[test]
    fn no_reload_between_replicas_and_memory_over_commits_a_card_or_changes_a_share(
        first in any_config(),
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let (mut wish, mut live): (_, Vec<LiveShare>) = (first, Vec::new());
        for step in steps {
            let before = live.clone();
            match step {
                Step::Reconfigure(config) => wish = config,
                Step::End(at) => { if at < live.len() { live.remove(at); } }
                Step::Ask(ids, renamed) => {
                    let ids: Vec<DeviceId> = ids.iter().map(|(g, n)| replica(*g, *n)).collect();
                    let name = resource(if renamed { "aliyun.com/gpu-mem" } else { "nvidia.com/gpu" });
                    if let Ok(grant) = grant(&wish, &inventory(), &live, &name, &ids) {
                        live = grant.live;
                    }
                    // Who shares no id with the request keeps what it has.
                    for share in &before {
                        let asked = share.resource == name && ids.iter().any(|id| share.ids.contains(id));
                        prop_assert!(asked || live.contains(share));
                    }
                }
            }
            let node = plan(&wish, &inventory(), &live);
            for gpu in &inventory().gpus {
                let mine: Vec<_> = live.iter().filter(|share| share.gpu == gpu.uuid).collect();
                prop_assert!(mine.iter().map(|l| l.share.memory).sum::<Memory>() <= gpu.memory);
                prop_assert!(mine.len() <= 48);
                // Who holds a share keeps the daemon that serves it.
                let hosting = &node.gpu(&gpu.uuid).unwrap().hosting;
                for share in mine {
                    let serves = match hosting {
                        Hosting::Mps { resource, limits } => {
                            *resource == share.resource && limits.memory >= share.share.memory
                        }
                        Hosting::Exclusive => share.mode == crate::Mode::Exclusive,
                        Hosting::Nothing => false,
                    };
                    prop_assert!(serves, "{hosting:?} for {share:?}");
                }
            }
        }
    }

    /// What the kubelet is told is free can be granted to one container, all of it.
    #[test]
    fn all_free_units_can_be_granted_at_once(before in any_config(), taken in 1u32..9, after in any_config()) {
        let name = before.sharing[0].resource.clone();
        let live = grant(&before, &inventory(), &[], &name, &ids(0, 0..taken));
        let live = live.map(|grant| grant.live).unwrap_or_default();
        let node = plan(&after, &inventory(), &live);
        let card = &node.gpus[0];
        let free: Vec<DeviceId> = card.units.iter()
            .filter(|unit| unit.state == UnitState::Free).map(|unit| unit.id.clone()).collect();
        if !free.is_empty() && card.is_shared() {
            let name = after.sharing[0].resource.clone();
            let grant = grant(&after, &inventory(), &live, &name, &free);
            prop_assert!(grant.is_ok(), "{grant:?}");
        }
    }
}
