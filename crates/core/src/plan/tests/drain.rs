//! Cards that are to be emptied.

use super::*;
use crate::grant::grant;
use crate::testing::memory_config;
use crate::{Drain, Mode};

fn draining(mut wish: NodeConfig) -> NodeConfig {
    wish.drain = Drain::Cards([uuid(0)].into());
    wish
}

#[test]
fn a_drained_card_offers_nothing_and_the_other_is_as_before() {
    let open = plan(&config(2), &inventory(), &[]);
    let node = plan(&draining(config(2)), &inventory(), &[]);
    let first = &node.gpus[0];
    assert_eq!(first.free, 0);
    assert_eq!(
        states(first),
        [("0".into(), UnitState::Unbacked), ("1".into(), UnitState::Unbacked)]
    );
    assert_eq!(first.hosting, Hosting::Nothing);
    assert_eq!(first.reason, Some(Reason::CardDrained { gpu: uuid(0) }));
    assert_eq!(node.gpus[1], open.gpus[1]);
}

#[test]
fn live_shares_of_a_drained_card_keep_their_daemon_at_no_more_than_they_need() {
    let live = [held(&[replica(0, 0)], 3840, 250)];
    let first = &plan(&draining(config(2)), &inventory(), &live).gpus[0];
    assert_eq!(states(first), [("0".into(), UnitState::Held), ("1".into(), UnitState::Unbacked)]);
    assert_eq!(limits_of(first).memory, Memory::from_mib(3840));
    assert_eq!(limits_of(first).percent.tenths(), 250);
    assert_eq!(first.reason, Some(Reason::CardDraining { gpu: uuid(0), shares: 1 }));
}

#[test]
fn a_drained_card_has_a_generation_of_its_own_for_each_wish() {
    let name =
        |wish: &NodeConfig| plan(wish, &inventory(), &[]).gpus[0].generation.as_str().to_owned();
    assert_eq!(name(&draining(config(2))), "drained/mps/nvidia.com/gpu/2x7680M@50.0");
    assert_eq!(name(&draining(config(1))), "drained/exclusive/nvidia.com/gpu");
}

#[test]
fn a_whole_card_is_drained_too_and_stays_its_holder_s_until_then() {
    let idle = &plan(&draining(config(1)), &inventory(), &[]).gpus[0];
    assert_eq!((idle.free, &idle.hosting), (0, &Hosting::Nothing));
    let whole =
        LiveShare { mode: Mode::Exclusive, ..held(&[DeviceId::whole(uuid(0))], 15360, 1000) };
    let used = &plan(&draining(config(1)), &inventory(), &[whole]).gpus[0];
    assert_eq!(used.hosting, Hosting::Exclusive);
    assert!(matches!(used.reason, Some(Reason::CardDraining { shares: 1, .. })));
}

#[test]
fn units_of_memory_are_drained_like_replicas() {
    let wish = draining(memory_config(1024, 0));
    let first = &plan(&wish, &inventory(), &[]).gpus[0];
    assert_eq!(first.free, 0);
    assert!(first.is_shared(), "it is still a card of memory units, and told of as such");
}

#[test]
fn a_card_that_the_config_is_refused_on_is_drained_all_the_same() {
    let first = &plan(&draining(config(49)), &inventory(), &[]).gpus[0];
    assert_eq!(first.reason, Some(Reason::CardDrained { gpu: uuid(0) }));
}

#[test]
fn a_request_for_a_drained_card_is_refused_with_the_reason() {
    let ids = [replica(0, 1)];
    let live = [held(&[replica(0, 0)], 7680, 500)];
    let wish = draining(config(2));
    let refusal = grant(&wish, &inventory(), &live, &resource("nvidia.com/gpu"), &ids).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "`GPU-00000000-0000-0000-0000-000000000000` is being drained and takes no new pods, 1 share \
         of it is still held; hint: wait for their pods to end, or evict them \
         (`kubectl mpshare drain --evict`)"
    );
}

#[test]
fn all_cards_are_drained_by_one_word() {
    let wish = NodeConfig { drain: Drain::All, ..config(2) };
    assert!(plan(&wish, &inventory(), &[]).gpus.iter().all(|gpu| gpu.is_drained && gpu.free == 0));
}
