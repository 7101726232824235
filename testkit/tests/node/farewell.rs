//! Clients of a pod that is being deleted leave their card before the kubelet kills them.

use std::time::{Duration, Instant};

use mpshare_testkit::fakekubelet::PodHandle;
use mpshare_testkit::simnode::{Role, Setup, SimNode};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::scene::{
    PATIENCE, bound, client, control_log, hold, hold_bound, logs, processes_of, ready, running,
    wait_or,
};

const GRACE: Duration = Duration::from_secs(4);

/// What the kubelet says of a container that it killed.
const KILLED: i32 = 128 + 9;

fn one_card() -> Setup {
    Setup { cards: vec![Setup::two_cards().cards[0]], ..Setup::two_cards() }
}

fn patient(name: &str, habits: &[&str]) -> Value {
    let command = [&["cuda-sample", "--alloc", "1Gi", "--hold", "forever"], habits].concat();
    let mut pod = bound(name, 1, &command);
    pod["spec"]["terminationGracePeriodSeconds"] = json!(GRACE.as_secs());
    pod
}

/// The lines of the daemon's log about clients that were terminated.
async fn terminations(node: &SimNode) -> Vec<String> {
    let daemon = ready(node, 0).await.daemon.unwrap();
    let log = control_log(&daemon);
    let lines = log.lines().filter(|line| line.contains("terminate_client"));
    lines.map(ToOwned::to_owned).collect()
}

/// Deletes a pod as a user does; how long it took to end, and how it did.
async fn delete(node: &SimNode, pod: &PodHandle) -> (Duration, Option<i32>) {
    let start = Instant::now();
    node.kube().delete("pods", "default", &pod.spec().name).await.unwrap();
    if let Err(error) = pod.wait_stopped(PATIENCE).await {
        panic!("{error}\n{}", logs(node));
    }
    (start.elapsed(), pod.status().containers["c"].exit_code())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_passes_over_sigterm_is_terminated_before_it_is_killed() {
    let node = running(one_card(), 2).await;
    let neighbour = hold(&node, client("neighbour", 1, "1Gi")).await;
    let deaf = hold_bound(&node, patient("deaf", &["--ignore-sigterm"])).await;
    let pid = processes_of(&node, &deaf).into_iter().next().unwrap();
    let (took, code) = delete(&node, &deaf).await;
    // It noticed by itself that it has lost its context.
    assert!(took < GRACE && code != Some(KILLED), "{took:?} {code:?}");
    assert!(took + Duration::from_millis(100) >= GRACE / 2, "it had its time: {took:?}");
    let told = terminations(&node).await;
    assert!(told.len() == 1 && told[0].ends_with(&format!(" {pid}")), "{told:?}");
    assert_eq!(processes_of(&node, &neighbour).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_stays_without_its_context_is_left_to_the_kubelet() {
    let node = running(one_card(), 2).await;
    let deaf = hold_bound(&node, patient("deaf", &["--ignore-sigterm", "--linger"])).await;
    let (took, code) = delete(&node, &deaf).await;
    assert!(took >= GRACE && code == Some(KILLED), "{took:?} {code:?}");
    assert_eq!(terminations(&node).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_ends_by_itself_is_left_alone() {
    let node = running(one_card(), 2).await;
    let polite = hold_bound(&node, patient("polite", &[])).await;
    let (took, _) = delete(&node, &polite).await;
    assert!(took < GRACE / 2, "{took:?}");
    let second = hold_bound(&node, patient("deaf", &["--ignore-sigterm"])).await;
    delete(&node, &second).await;
    assert_eq!(terminations(&node).await.len(), 1, "only the second");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_that_is_killed_meanwhile_leaves_everybody_else_at_work() {
    let mut node = running(one_card(), 2).await;
    let neighbour = hold(&node, client("neighbour", 1, "1Gi")).await;
    let deaf = hold_bound(&node, patient("deaf", &["--ignore-sigterm"])).await;
    node.kube().delete("pods", "default", "deaf").await.unwrap();
    let is_ending = || {
        let bound = std::fs::read_to_string(node.mps_root().bound_pods());
        bound.is_ok_and(|text| text.contains("\"ending\""))
    };
    wait_or("it is known to end", || logs(&node), is_ending).await;
    node.end_role(Role::Supervisor, Signal::KILL).unwrap();
    node.start_role(Role::Supervisor).unwrap();
    deaf.wait_stopped(PATIENCE).await.unwrap();
    assert_eq!(processes_of(&node, &neighbour).len(), 1);
    let next = hold_bound(&node, patient("next", &[])).await;
    assert_eq!(processes_of(&node, &next).len(), 1);
}
