//! Control daemons that live and don't answer, as on a machine with too much to do.

use std::time::{Duration, Instant};

use mpshare_api::{GpuState, GpuStatus};
use mpshare_testkit::fakekubelet::{Phase, PodHandle};
use mpshare_testkit::simnode::{Role, Setup, SimNode};
use rustix::process::Signal;

use super::{check, check_for, logged, signal};
use crate::scene::{GPU, card, client, hold, logs, ready, running, wait_or};

/// A node with one card in two units, a pod on one of them, and the card's daemon.
async fn one_card() -> (SimNode, PodHandle, i32) {
    let setup = Setup { cards: vec![Setup::two_cards().cards[0]], ..Setup::two_cards() };
    let node = running(setup, 2).await;
    let pod = hold(&node, client("first", 1, "1Gi")).await;
    let has_client =
        |card: &GpuStatus| card.daemon.as_ref().is_some_and(|daemon| daemon.clients.len() == 1);
    let status = card(&node, 0, "with a client", has_client).await;
    (node, pod, status.daemon.unwrap().pid)
}

/// Stops the card's daemon and waits until the supervisor has asked it in vain.
async fn silence(node: &SimNode, daemon: i32) {
    node.stop_process(daemon).await.unwrap();
    let has_limits = |card: &GpuStatus| card.daemon.as_ref().is_some_and(|d| d.limits.is_some());
    let status = card(node, 0, "silent", |card| !has_limits(card)).await;
    assert_eq!(status.state, GpuState::Ready, "{status:#?}");
}

fn healthy_units(node: &SimNode) -> usize {
    node.kubelet().device_ids(GPU).values().filter(|health| *health == "Healthy").count()
}

fn said(node: &SimNode) -> [usize; 2] {
    ["but lives", "answers again"].map(|what| logged(node, Role::Supervisor, what))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_is_silent_for_a_while_costs_no_unit_and_no_pod() {
    let (node, first, daemon) = one_card().await;
    silence(&node, daemon).await;
    let second = node.kubelet().admit(client("second", 1, "1Gi"));
    wait_or("it is granted", || logs(&node), || !second.devices("c", GPU).is_empty()).await;
    check_for(&node, Duration::from_secs(2), || {
        assert_eq!(healthy_units(&node), 2, "{}", logs(&node));
        let status = second.status();
        assert!(status.phase == Phase::Pending, "{status:?}");
        assert!(status.pids().is_empty(), "its limits can't be read: {status:?}");
    })
    .await;
    assert_eq!(said(&node), [1, 0], "{}", logs(&node));
    signal(daemon, Signal::CONT);
    let is_up = || second.log("c").contains("holding");
    wait_or("it starts", || format!("{:?}\n{}", second.status(), logs(&node)), is_up).await;
    assert_eq!(ready(&node, 0).await.daemon.unwrap().pid, daemon);
    assert_eq!(first.status().phase, Phase::Running);
    assert_eq!(said(&node), [1, 1], "{}", logs(&node));
    check(&node);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_stays_silent_is_a_fault_in_the_end_and_comes_back_all_the_same() {
    let (node, first, daemon) = one_card().await;
    let begin = Instant::now();
    silence(&node, daemon).await;
    // It is borne with for 30 s, and a look at it takes 5 s.
    let is_faulty = || node.status().is_some_and(|status| status.gpus[0].state == GpuState::Fault);
    while begin.elapsed() < Duration::from_secs(25) {
        assert!(!is_faulty(), "{}", logs(&node));
        check_for(&node, Duration::from_millis(200), || ()).await;
    }
    let is_fault = |card: &GpuStatus| card.state == GpuState::Fault;
    let reason = card(&node, 0, "a fault", is_fault).await.reason.unwrap();
    assert_eq!(reason.code, "DaemonFailed");
    wait_or("no unit is healthy", || logs(&node), || healthy_units(&node) == 0).await;
    signal(daemon, Signal::CONT);
    assert_eq!(ready(&node, 0).await.daemon.unwrap().pid, daemon);
    wait_or("all units are back", || logs(&node), || healthy_units(&node) == 2).await;
    assert_eq!(first.status().phase, Phase::Running);
    assert_eq!(said(&node), [1, 1], "{}", logs(&node));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_daemon_that_dies_is_replaced_at_once() {
    let (node, _first, daemon) = one_card().await;
    silence(&node, daemon).await;
    let begin = Instant::now();
    signal(daemon, Signal::KILL);
    let is_new = |card: &GpuStatus| {
        card.state == GpuState::Ready && card.daemon.as_ref().is_some_and(|d| d.pid != daemon)
    };
    card(&node, 0, "ready with a new daemon", is_new).await;
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}\n{}", begin.elapsed(), logs(&node));
    assert_eq!(said(&node), [1, 0], "{}", logs(&node));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_daemon_without_a_server_is_a_fault_at_once() {
    let (node, _first, daemon) = one_card().await;
    let server = ready(&node, 0).await.daemon.unwrap().server.unwrap();
    silence(&node, daemon).await;
    let begin = Instant::now();
    signal(server, Signal::KILL);
    // Nothing keeps a process without MPS off the card.
    card(&node, 0, "a fault", |card| card.state == GpuState::Fault).await;
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}\n{}", begin.elapsed(), logs(&node));
    signal(daemon, Signal::CONT);
    assert_eq!(ready(&node, 0).await.daemon.unwrap().pid, daemon);
}
