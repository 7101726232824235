//! Health events.

use std::time::{Duration, Instant};

use mpshare_nvml::{EventKind, GpuInventory as _, HealthEvent, NvmlInventory};
use mpshare_sim_state::{Health, Xid};

use super::node::{A100, Node, T4, on_node, uuid};

const LONG: Duration = Duration::from_secs(20);

fn raise(node: &Node, gpu: &str, xid: u32) {
    node.change(|state| {
        state.sequence += 1;
        let sequence = state.sequence;
        let gpu = state.gpus.iter_mut().find(|card| card.uuid == gpu).unwrap();
        gpu.xids.push(Xid { sequence, xid });
    });
}

fn event(gpu: &str, kind: EventKind) -> HealthEvent {
    let gpu = Some(uuid(gpu));
    HealthEvent { gpu, kind }
}

/// Registers the cards: only later events are told.
fn listening(node: &Node) -> NvmlInventory {
    let nvml = node.open();
    assert_eq!(nvml.wait_for_event(Duration::ZERO).unwrap(), None);
    nvml
}

#[test]
fn an_xid_is_told_once_with_its_card() {
    on_node(|node| {
        let nvml = listening(node);
        raise(node, A100, 79);
        let found = nvml.wait_for_event(LONG).unwrap();
        assert_eq!(found, Some(event(A100, EventKind::Xid(79))));
        assert_eq!(nvml.wait_for_event(Duration::ZERO).unwrap(), None);
    });
}

#[test]
fn the_xid_that_the_wrapper_calls_unknown_is_999() {
    on_node(|node| {
        let nvml = listening(node);
        raise(node, T4, 999);
        let found = nvml.wait_for_event(LONG).unwrap();
        assert_eq!(found, Some(event(T4, EventKind::Xid(999))));
    });
}

#[test]
fn a_quiet_wait_takes_its_time() {
    on_node(|node| {
        let nvml = listening(node);
        let begin = Instant::now();
        assert_eq!(nvml.wait_for_event(Duration::from_millis(200)).unwrap(), None);
        assert!(begin.elapsed() >= Duration::from_millis(200));
    });
}

#[test]
fn a_lost_card_is_an_event_and_the_others_are_still_heard() {
    on_node(|node| {
        let nvml = listening(node);
        node.change_gpu(T4, |gpu| gpu.health = Health::Lost);
        assert_eq!(nvml.wait_for_event(LONG).unwrap(), Some(event(T4, EventKind::Lost)));
        assert_eq!(nvml.wait_for_event(Duration::ZERO).unwrap(), None);
        raise(node, A100, 48);
        let found = nvml.wait_for_event(LONG).unwrap();
        assert_eq!(found, Some(event(A100, EventKind::Xid(48))));
    });
}

#[test]
fn a_card_that_came_back_is_heard_again() {
    on_node(|node| {
        node.change_gpu(T4, |gpu| gpu.health = Health::Lost);
        let nvml = listening(node);
        node.change_gpu(T4, |gpu| gpu.health = Health::Ok);
        assert_eq!(nvml.wait_for_event(Duration::ZERO).unwrap(), None);
        raise(node, T4, 62);
        let found = nvml.wait_for_event(LONG).unwrap();
        assert_eq!(found, Some(event(T4, EventKind::Xid(62))));
    });
}

#[test]
fn a_node_without_cards_has_no_events_and_waits_all_the_same() {
    on_node(|node| {
        node.change(|state| state.gpus.clear());
        let nvml = node.open();
        let begin = Instant::now();
        assert_eq!(nvml.wait_for_event(Duration::from_millis(100)).unwrap(), None);
        assert!(begin.elapsed() >= Duration::from_millis(100));
    });
}
