//! Containers that have to wait before they start.

use std::time::Duration;

use mpshare_testkit::fakekubelet::{ContainerState, Phase};

use crate::setup::{Node, SOON, stays, wait_until};
use crate::supervisor::{T4, V100};

fn waiting_for(state: &ContainerState) -> String {
    match state {
        ContainerState::Waiting { reason, message } if reason == "CreateContainerConfigError" => {
            message.clone()
        }
        ContainerState::Waiting { .. }
        | ContainerState::Running { .. }
        | ContainerState::Terminated { .. } => String::new(),
    }
}

#[tokio::test]
async fn a_container_waits_until_its_limits_are_verified() {
    let (mut node, plugin) = Node::ready(2, 4).await;
    plugin.stop().await;
    node.options.timings.pre_start = Duration::from_millis(200);
    let _plugin = node.start();
    node.allocatable(4).await;
    node.supervisor.set(|wishes| wishes.unverified = vec![T4.into(), V100.into()]).await;
    let pod = node.admit("a", 1);
    let held = pod.wait("held back", SOON, |status| {
        waiting_for(&status.containers["main"].state).contains("no verified limit")
    });
    held.await.unwrap();
    node.supervisor.set(|wishes| wishes.unverified.clear()).await;
    pod.wait_phase(Phase::Running, SOON).await.unwrap();
    node.check();
}

#[tokio::test]
async fn a_container_that_waits_starts_as_soon_as_it_may() {
    let (node, _plugin) = Node::ready(2, 4).await;
    node.supervisor.set(|wishes| wishes.unverified = vec![T4.into(), V100.into()]).await;
    let pod = node.admit("a", 1);
    pod.wait("admitted", SOON, |status| status.admitted).await.unwrap();
    node.supervisor.set(|wishes| wishes.unverified.clear()).await;
    // Much less than the 20 s that a call may take.
    pod.wait_phase(Phase::Running, Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn a_container_waits_for_the_processes_of_its_units_former_owner() {
    let (mut node, plugin) = Node::ready(2, 4).await;
    plugin.stop().await;
    node.options.timings.pre_start = Duration::from_millis(200);
    let _plugin = node.start();
    node.allocatable(4).await;
    let mut owners = Vec::new();
    for n in 0..4 {
        owners.push(node.running(&format!("old{n}"), 1).await);
    }
    let owner = &owners[0];
    let card = owner.devices("main", "nvidia.com/gpu").first().unwrap()[..40].to_owned();
    let uid = owner.uid().to_owned();
    node.supervisor
        .set(|wishes| {
            wishes.clients.insert(card.clone(), vec![(4711, uid)]);
        })
        .await;
    owner.force_delete();
    let next = node.admit("next", 1);
    let held = next.wait("held back", SOON, |status| {
        waiting_for(&status.containers["main"].state).contains("[4711]")
    });
    held.await.unwrap();
    node.supervisor.set(|wishes| wishes.clients.clear()).await;
    next.wait_phase(Phase::Running, SOON).await.unwrap();
    node.check();
}

#[tokio::test]
async fn a_daemon_that_has_just_died_gets_no_new_client() {
    let (node, _plugin) = Node::ready(2, 4).await;
    // The report still says that all is well.
    node.supervisor.set(|wishes| wishes.is_away = true).await;
    node.supervisor.kill_daemons().await;
    let message = node.refusal("a", 1).await;
    assert!(message.contains("has ended"), "{message}");
    assert!(message.contains("PID 100"), "{message}");
    node.check();
}

#[tokio::test]
async fn a_share_counts_while_its_pods_processes_live() {
    let (node, _plugin) = Node::ready(2, 4).await;
    let owner = node.running("old", 1).await;
    let card = owner.devices("main", "nvidia.com/gpu").first().unwrap()[..40].to_owned();
    let uid = owner.uid().to_owned();
    // The checkpoint tells the pod's UID.
    wait_until("owner is known", || {
        let text = std::fs::read_to_string(node.root.allocations()).unwrap();
        text.contains(&uid)
    })
    .await;
    node.supervisor
        .set(|wishes| {
            wishes.clients.insert(card, vec![(4711, uid)]);
        })
        .await;
    owner.force_delete();
    owner.wait_stopped(SOON).await.unwrap();
    let long = node.options.timings.admission * 2;
    stays("share on record", long, || node.shares().len() == 1).await;
    node.supervisor.set(|wishes| wishes.clients.clear()).await;
    node.shares_are(0).await;
}
