//! An API server that fails, and objects that go away.

use std::time::Duration;

use mpshare_testkit::fakekube::{Effect, Matching, Times, WatchEnd};
use mpshare_testkit::simnode::{NODE, Role, Setup, SimNode};
use serde_json::{Value, json};

use super::{check_for, log_lines};
use crate::scene::{GPU, PATIENCE, client, config, hold, label, logs, running, wait_or};

const MAP: (&str, &str, &str) = ("configmaps", "kube-system", "nvidia-device-plugin-configs");
const LABEL: &str = "nvidia.com/device-plugin.config";

fn condition(node: &SimNode) -> Value {
    let object = node.kube().get("nodes", "", NODE).unwrap_or_default();
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let mine = conditions.into_iter().find(|condition| condition["type"] == "MPSShareReady");
    mine.unwrap_or_default()
}

async fn told(node: &SimNode, reason: &str) {
    let more = || format!("{:#}\n{}", condition(node), logs(node));
    wait_or(&format!("the node says {reason}"), more, || condition(node)["reason"] == reason).await;
}

async fn follows(node: &SimNode, units: usize) {
    if let Err(error) = node.kubelet().wait_allocatable(GPU, units, PATIENCE).await {
        panic!("{error}\n{:#}\n{}", condition(node), logs(node));
    }
    // A share of the former size leaves room for fewer units than there will be.
    let is_told =
        || condition(node)["reason"] == "Ready" || condition(node)["reason"] == "UnitsNotBacked";
    wait_or("the node says so", || format!("{:#}", condition(node)), is_told).await;
}

fn assert_quiet(node: &SimNode) {
    for role in Role::ALL {
        let lines = log_lines(node, role);
        assert!(lines < 100, "{role} logged {lines} lines\n{}", logs(node));
        let text = std::fs::read_to_string(node.log(role)).unwrap();
        let longest = text.lines().map(str::len).max().unwrap_or(0);
        assert!(longest < 4096, "{role} logged a line of {longest} bytes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_config_map_a_node_goes_on_and_says_so() {
    let node = running(Setup::two_cards(), 2).await;
    let pod = hold(&node, client("a", 1, "1Gi")).await;
    let map = node.kube().get(MAP.0, MAP.1, MAP.2).unwrap();
    node.kube().delete(MAP.0, MAP.1, MAP.2).await.unwrap();
    told(&node, "ConfigSourceMissing").await;
    check_for(&node, Duration::from_secs(1), || assert_eq!(node.kubelet().allocatable(GPU), 4))
        .await;
    let again = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": map["data"],
        "metadata": {"name": MAP.2, "namespace": MAP.1},
    });
    node.kube().create(again).await.unwrap();
    label(&node, 4).await;
    follows(&node, 7).await;
    assert!(!pod.status().pids().is_empty());
    assert_quiet(&node);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_label_or_with_an_unknown_one_a_node_goes_on_and_says_so() {
    let node = running(Setup::two_cards(), 2).await;
    node.kube().remove_node_label(NODE, LABEL).await.unwrap();
    told(&node, "ConfigNotChosen").await;
    node.kube().patch_node_label(NODE, LABEL, "nosuch").await.unwrap();
    told(&node, "ConfigUnknown").await;
    let message = condition(&node)["message"].to_string();
    assert!(message.contains("nosuch") && message.contains("mps-4x"), "{message}");
    assert_eq!(node.kubelet().allocatable(GPU), 4);
    label(&node, 4).await;
    follows(&node, 8).await;
    assert_quiet(&node);
}

#[tokio::test(flavor = "multi_thread")]
async fn junk_of_any_size_in_a_config_is_refused_in_few_words() {
    let node = running(Setup::two_cards(), 2).await;
    let edit = async |text: String| {
        let patch = json!({"data": {"mps-2x": text}});
        node.kube().patch(MAP.0, MAP.1, MAP.2, patch).await.unwrap();
    };
    for junk in [
        "x".repeat(900_000),
        "[".repeat(50_000),
        "a: &a [*a, *a]\n".repeat(2000),
        "\u{1}\u{2}".to_owned(),
    ] {
        edit(junk).await;
        told(&node, "ConfigInvalid").await;
        let message = condition(&node)["message"].as_str().unwrap().to_owned();
        assert!(message.len() <= 1024, "{} bytes", message.len());
        assert_eq!(node.kubelet().allocatable(GPU), 4);
        edit(config(2)).await;
        told(&node, "Ready").await;
    }
    assert_quiet(&node);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_object_that_is_deleted_and_made_anew_is_the_same_node() {
    let node = running(Setup::two_cards(), 2).await;
    let pod = hold(&node, client("a", 1, "1Gi")).await;
    told(&node, "Ready").await;
    node.kube().delete("nodes", "", NODE).await.unwrap();
    check_for(&node, Duration::from_secs(1), || assert_eq!(node.kubelet().allocatable(GPU), 4))
        .await;
    let again = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": NODE, "labels": {LABEL: "mps-4x", "kubernetes.io/hostname": NODE}},
    });
    node.kube().create(again).await.unwrap();
    follows(&node, 7).await;
    assert!(!pod.status().pids().is_empty());
    assert_quiet(&node);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_fails_in_every_way_is_followed_as_soon_as_it_answers() {
    let node = running(Setup::two_cards(), 2).await;
    told(&node, "Ready").await;
    for (round, code) in [(3, 500), (4, 410), (2, 429), (3, 403)] {
        node.kube().faults().inject(Times::Always, Matching::any(), Effect::Fail(code));
        node.kube().end_watches(if round == 3 { WatchEnd::Closed } else { WatchEnd::Broken });
        node.kube().compact_history();
        label(&node, round).await;
        check_for(&node, Duration::from_millis(600), || ()).await;
        node.kube().faults().clear();
        follows(&node, 2 * round).await;
    }
    assert_quiet(&node);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_api_server_holds_up_no_pod_and_is_followed() {
    let node = running(Setup::two_cards(), 2).await;
    let slow = Effect::Delay(Duration::from_secs(2));
    node.kube().faults().inject(Times::Always, Matching::any(), slow);
    node.kube().end_watches(WatchEnd::Closed);
    label(&node, 4).await;
    hold(&node, client("a", 1, "1Gi")).await;
    node.kubelet().wait_allocatable(GPU, 7, PATIENCE).await.ok();
    follows(&node, node.kubelet().allocatable(GPU)).await;
    assert!(node.kubelet().allocatable(GPU) >= 7);
    assert_quiet(&node);
}
