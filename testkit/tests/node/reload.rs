//! New configs on a live node.

use mpshare_testkit::fakekubelet::Phase;
use mpshare_testkit::simnode::{NODE, Role, Setup, SimNode};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::scene::{GPU, PATIENCE, bare, client, hold, label, logs, running, wait};

fn condition(node: &SimNode) -> Value {
    let object = node.kube().get("nodes", "", NODE).unwrap_or_default();
    let mut conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|condition| condition["type"] == "MPSShareReady");
    conditions.pop().unwrap_or_default()
}

async fn edit(node: &SimNode, key: &str, text: &str) {
    let patch = json!({"data": {key: text}});
    let name = "nvidia-device-plugin-configs";
    node.kube().patch("configmaps", "kube-system", name, patch).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_and_their_sizes_survive_every_config() {
    let node = running(Setup::two_cards(), 2).await;
    let pod = hold(&node, client("old", 1, "4Gi")).await;
    let pids = pod.status().pids();
    for (replicas, usable) in [(4, 7), (1, 2), (3, 5), (2, 4)] {
        label(&node, replicas).await;
        if let Err(error) = node.kubelet().wait_allocatable(GPU, usable, PATIENCE).await {
            panic!("{replicas} replicas: {error}\n{:#?}\n{}", node.status(), logs(&node));
        }
        assert_eq!(pod.status().pids(), pids, "{replicas} replicas");
    }
    let state = node.store().read().unwrap();
    let clients = state.processes.iter().filter(|process| process.limit_mib == Some(7680));
    assert_eq!(clients.count(), 1);
    assert_eq!(node.kubelet().violations(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_with_a_mistake_leaves_the_last_good_one_in_force_and_says_where() {
    let node = running(Setup::two_cards(), 2).await;
    edit(&node, "mps-2x", "version: v1\nsharing:\n  mps:\n    resources:\n    - name: nvidia.com/gpu\n      replica: 4\n").await;
    wait("the condition names the mistake", || {
        let condition = condition(&node);
        let message = condition["message"].as_str().unwrap_or_default();
        condition["reason"] == "ConfigInvalid"
            && message.contains("replica")
            && message.contains('6')
    })
    .await;
    assert_eq!(node.kubelet().allocatable(GPU), 4);
    edit(&node, "mps-2x", &crate::scene::config(3)).await;
    node.kubelet().wait_allocatable(GPU, 6, PATIENCE).await.unwrap();
    wait("the condition is true again", || condition(&node)["status"] == "True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_and_whole_cards_live_on_one_node() {
    let mut node = bare(Setup::two_cards()).await;
    let text = format!("{}      devices: [1]\n", crate::scene::config(4));
    edit(&node, "mps-4x", &text).await;
    label(&node, 4).await;
    node.start_product().unwrap();
    node.kubelet().wait_allocatable(GPU, 5, PATIENCE).await.unwrap();
    let ids = node.kubelet().device_ids(GPU);
    assert_eq!(ids.keys().filter(|id| !id.contains("::")).count(), 1);
    hold(&node, client("quarter", 1, "1Gi")).await;
    let five = node.kubelet().admit(client("too-many", 5, "1Gi"));
    five.wait_phase(Phase::Failed, PATIENCE).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn units_of_two_cards_for_one_container_are_refused_with_what_each_has() {
    let node = running(Setup::two_cards(), 2).await;
    let pod = node.kubelet().admit(client("wide", 3, "1Gi"));
    let status = pod.wait_phase(Phase::Failed, PATIENCE).await.unwrap();
    assert_eq!(status.reason.as_deref(), Some("UnexpectedAdmissionError"));
    let message = status.message.unwrap();
    assert!(message.contains("`GPU-cb1213a3`: 2, `GPU-5f3c9a20`: 2"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_kubelet_has_all_units_within_a_second_and_the_same_ids() {
    let node = running(Setup::two_cards(), 2).await;
    let pod = hold(&node, client("a", 1, "1Gi")).await;
    let (pids, ids) = (pod.status().pids(), node.kubelet().device_ids(GPU));
    node.kubelet().restart().await.unwrap();
    let second = std::time::Duration::from_secs(1);
    node.kubelet().wait_allocatable(GPU, 4, second).await.unwrap();
    assert_eq!((pod.status().pids(), node.kubelet().device_ids(GPU)), (pids, ids));
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_order_the_processes_start_in_the_node_comes_up() {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let mut node = bare(Setup::two_cards()).await;
    label(&node, 2).await;
    for order in orders {
        for role in order.map(|index| Role::ALL[index]) {
            let before = std::fs::read_to_string(node.log(role)).unwrap_or_default().len();
            node.start_role(role).unwrap();
            let has_started =
                || std::fs::read_to_string(node.log(role)).is_ok_and(|log| log.len() > before);
            wait("the process has begun to work", has_started).await;
        }
        node.kubelet().wait_allocatable(GPU, 4, PATIENCE).await.unwrap();
        for role in Role::ALL {
            node.end_role(role, Signal::TERM).unwrap();
        }
        node.kubelet().wait_allocatable(GPU, 0, PATIENCE).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_of_each_role_do_not_fight() {
    let mut node = running(Setup::two_cards(), 2).await;
    let pod = hold(&node, client("a", 1, "1Gi")).await;
    let pids = pod.status().pids();
    let first = Role::ALL.map(|role| node.role_pid(role).unwrap());
    let mut seconds = Vec::new();
    for role in Role::ALL {
        seconds.push(node.start_second(role).unwrap());
    }
    label(&node, 4).await;
    node.kubelet().wait_allocatable(GPU, 7, PATIENCE).await.unwrap();
    assert_eq!(pod.status().pids(), pids);
    assert_eq!(node.kubelet().violations(), []);
    for mut second in seconds {
        second.kill().unwrap();
        second.wait().unwrap();
    }
    let still = Role::ALL.map(|role| node.role_pid(role).unwrap());
    assert_eq!((first, node.ended_roles()), (still, Vec::new()));
}
