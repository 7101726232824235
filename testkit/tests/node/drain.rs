//! Cards that people have emptied, on a live node.

use mpshare_api::inventory_annotation::NodeGpus;
use mpshare_api::{GpuState, GpuStatus};
use mpshare_sim_state::ComputeMode;
use mpshare_testkit::fakekubelet::{Phase, PodHandle};
use mpshare_testkit::simnode::{NODE, Role, Setup, SimNode};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::scene::{GPU, PATIENCE, card, client, hold, label, logs, ready, running, wait, wait_or};

/// Writes the annotation as `kubectl mpshare drain` does; `null` takes it away.
async fn annotate(node: &SimNode, value: Value) {
    let patch = json!({"metadata": {"annotations": {"mpshare.io/drain": value}}});
    node.kube().patch("nodes", "", NODE, patch).await.unwrap();
}

fn naming(uuid: &str) -> Value {
    json!({"gpus": [uuid]}).to_string().into()
}

fn uuid(index: usize) -> &'static str {
    Setup::two_cards().cards[index].1
}

fn mode(node: &SimNode, index: usize) -> ComputeMode {
    node.store().read().unwrap().gpus[index].compute_mode
}

fn is(card: &GpuStatus, code: &str) -> bool {
    card.state == GpuState::Draining && card.reason.as_ref().is_some_and(|it| it.code == code)
}

async fn until(node: &SimNode, index: usize, code: &str) -> GpuStatus {
    card(node, index, code, |card| is(card, code)).await
}

async fn allocatable(node: &SimNode, units: usize) {
    if let Err(error) = node.kubelet().wait_allocatable(GPU, units, PATIENCE).await {
        panic!("{error}\n{:#?}\n{}", node.status(), logs(node));
    }
}

/// State and reason's code of each card, as the node tells them to everybody.
fn told(node: &SimNode) -> Vec<(String, String)> {
    let object = node.kube().get("nodes", "", NODE).unwrap_or_default();
    let text = object["metadata"]["annotations"]["mpshare.io/gpus"].as_str().unwrap_or("[]");
    let gpus: NodeGpus = text.parse().unwrap();
    gpus.0.into_iter().map(|gpu| (gpu.state, gpu.reason_code.unwrap_or_default())).collect()
}

async fn until_told(node: &SimNode, wanted: [(&str, &str); 2]) {
    let wanted = wanted.map(|(state, code)| (state.to_owned(), code.to_owned()));
    let more = || format!("{:?}\n{}", told(node), logs(node));
    wait_or(&format!("{wanted:?} in the annotation"), more, || told(node) == wanted).await;
}

/// A client on each of the two cards, in the order of the cards.
async fn a_client_on_each(node: &SimNode) -> [PodHandle; 2] {
    let first = hold(node, client("a", 1, "2Gi")).await;
    let second = hold(node, client("b", 1, "2Gi")).await;
    let is_on_first = first.devices("c", GPU).iter().all(|id| id.starts_with(uuid(0)));
    if is_on_first { [first, second] } else { [second, first] }
}

fn kill_and_start(node: &mut SimNode, role: Role) {
    node.end_role(role, Signal::KILL).unwrap();
    node.start_role(role).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_is_emptied_and_comes_back_while_the_other_goes_on_and_parts_are_killed() {
    let mut node = running(Setup::two_cards(), 2).await;
    let [there, elsewhere] = a_client_on_each(&node).await;
    let (pids, other_pids) = (there.status().pids(), elsewhere.status().pids());
    let daemon = ready(&node, 0).await.daemon.unwrap();
    let other = ready(&node, 1).await.daemon.unwrap();

    annotate(&node, naming(uuid(0))).await;
    until(&node, 0, "CardDraining").await;
    allocatable(&node, 3).await;
    until_told(&node, [("Draining", "CardDraining"), ("Ready", "")]).await;
    for role in Role::ALL {
        kill_and_start(&mut node, role);
        let now = until(&node, 0, "CardDraining").await.daemon.unwrap();
        assert_eq!(now.pid, daemon.pid, "after {role} was killed");
        assert!(now.limits.is_some(), "limits hold as before");
        allocatable(&node, 3).await;
    }
    assert_eq!(there.status().pids(), pids, "its client lives on");
    assert_eq!(mode(&node, 0), ComputeMode::ExclusiveProcess);

    there.delete();
    there.wait_gone(PATIENCE).await.unwrap();
    assert_eq!(until(&node, 0, "CardDrained").await.daemon, None);
    assert_eq!(mode(&node, 0), ComputeMode::Default);
    until_told(&node, [("Draining", "CardDrained"), ("Ready", "")]).await;
    for role in Role::ALL {
        kill_and_start(&mut node, role);
        assert_eq!(until(&node, 0, "CardDrained").await.daemon, None);
    }
    allocatable(&node, 2).await;

    annotate(&node, Value::Null).await;
    ready(&node, 0).await;
    allocatable(&node, 4).await;
    until_told(&node, [("Ready", ""), ("Ready", "")]).await;
    hold(&node, client("new", 1, "2Gi")).await;
    assert_eq!(elsewhere.status().pids(), other_pids);
    assert_eq!(ready(&node, 1).await.daemon.unwrap().pid, other.pid);
    assert_eq!(node.kubelet().violations(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_is_taken_back_in_time_ends_nothing() {
    let node = running(Setup::two_cards(), 2).await;
    let [there, _elsewhere] = a_client_on_each(&node).await;
    let daemon = ready(&node, 0).await.daemon.unwrap();
    annotate(&node, naming(uuid(0))).await;
    until(&node, 0, "CardDraining").await;
    annotate(&node, Value::Null).await;
    assert_eq!(ready(&node, 0).await.daemon.unwrap().pid, daemon.pid);
    allocatable(&node, 4).await;
    assert_eq!(there.status().phase, Phase::Running);
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_cards_are_drained_too() {
    let node = running(Setup::two_cards(), 1).await;
    let pod = hold(&node, client("whole", 1, "2Gi")).await;
    let id = pod.devices("c", GPU).into_iter().next().unwrap();
    let (held, idle) = if id == uuid(0) { (0, 1) } else { (1, 0) };
    annotate(&node, json!({"gpus": ["*"]}).to_string().into()).await;
    until(&node, held, "CardDraining").await;
    until(&node, idle, "CardDrained").await;
    allocatable(&node, 1).await;
    pod.delete();
    until(&node, held, "CardDrained").await;
    allocatable(&node, 0).await;
    annotate(&node, Value::Null).await;
    allocatable(&node, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_of_a_card_that_is_drained_is_started_again_when_it_fails() {
    let node = running(Setup::two_cards(), 2).await;
    let [there, _elsewhere] = a_client_on_each(&node).await;
    annotate(&node, naming(uuid(0))).await;
    until(&node, 0, "CardDraining").await;
    let before = there.status().pids()["c"];
    let pid = rustix::process::Pid::from_raw(i32::try_from(before).unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    wait("the container runs again", || {
        there.status().pids().get("c").is_some_and(|now| *now != before)
    })
    .await;
    wait("it holds its memory", || there.log("c").matches("holding").count() == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wish_that_makes_no_sense_changes_nothing_and_a_new_config_keeps_the_drain() {
    let node = running(Setup::two_cards(), 2).await;
    annotate(&node, naming(uuid(0))).await;
    until(&node, 0, "CardDrained").await;
    for (text, code) in [
        ("GPU-0a".to_owned(), "DrainUnreadable"),
        (json!({"gpus": ["GPU-0a"]}).to_string(), "DrainUnknownCards"),
    ] {
        annotate(&node, text.into()).await;
        wait(code, || {
            let events = node.kube().events_of("Node", NODE);
            events.iter().any(|event| event["reason"] == code)
        })
        .await;
        assert!(is(&node.status().unwrap().gpus[0], "CardDrained"));
    }
    label(&node, 4).await;
    allocatable(&node, 4).await;
    assert!(is(&node.status().unwrap().gpus[0], "CardDrained"));
}
