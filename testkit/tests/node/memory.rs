//! A card in units of memory, asked for as the ACK document does.

use std::time::Duration;

use mpshare_api::inventory_annotation::NodeGpus;
use mpshare_testkit::fakekubelet::{Phase, PodSpec, pod};
use mpshare_testkit::simnode::{NODE, Setup, SimNode};
use serde_json::json;

use crate::scene::{GPU, PATIENCE, bare, client, hold, label, logs, ready, wait, wait_or};

const MEM: &str = "aliyun.com/gpu-mem";

/// A node of one T4 with 15,360 MiB, with the label of the ACK document and no other.
async fn labelled() -> SimNode {
    let t4 = Setup::two_cards().cards[0];
    let mut node = bare(Setup { cards: vec![t4], ..Setup::two_cards() }).await;
    let text = "sharing: {mps: {resources: [{name: aliyun.com/gpu-mem, memoryUnit: 1Gi}]}}";
    let map = "nvidia-device-plugin-configs";
    let patch = json!({"data": {"gpu-mem": text}});
    node.kube().patch("configmaps", "kube-system", map, patch).await.unwrap();
    node.kube().patch_node_label(NODE, "ack.node.gpu.schedule", "mps").await.unwrap();
    node.start_product().unwrap();
    if let Err(error) = node.kubelet().wait_allocatable(MEM, 15, PATIENCE).await {
        panic!("{error}\n{:#?}\n{}", node.status(), logs(&node));
    }
    node
}

/// A pod with `units` GiB that takes `alloc`, a GiB after the other.
fn of(name: &str, units: usize, alloc: &str) -> PodSpec {
    let command = ["cuda-sample", "--alloc", alloc, "--hold", "forever"];
    pod(name).container("c").gpus(MEM, units).command(command).grace(Duration::ZERO)
}

fn annotation(node: &SimNode) -> Option<NodeGpus> {
    let object = node.kube().get("nodes", "", NODE)?;
    object["metadata"]["annotations"]["mpshare.io/gpus"].as_str()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn twice_seven_of_fifteen_gib_hold_a_third_pod_is_refused_and_the_eighth_gib_is_its_own_loss()
{
    let node = labelled().await;
    let first = hold(&node, of("first", 7, "6Gi")).await;
    let second = hold(&node, of("second", 7, "6Gi")).await;
    let env = &first.status().containers["c"].options.envs;
    for (name, value) in [
        ("ALIYUN_COM_GPU_MEM_IDX", "0"),
        ("ALIYUN_COM_GPU_MEM_POD", "7"),
        ("ALIYUN_COM_GPU_MEM_CONTAINER", "7"),
        ("ALIYUN_COM_GPU_MEM_DEV", "15"),
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=7168M"),
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100.0"),
    ] {
        assert_eq!(env[name], value, "{name}");
    }
    let limits = ready(&node, 0).await.daemon.unwrap().limits.unwrap();
    assert_eq!((limits.memory_mib, limits.percent_tenths), (7168, 1000));

    // The kubelet counts one unit as free; a scheduler that counts too wouldn't send the pod.
    let third = node.kubelet().admit(of("third", 2, "1Gi"));
    let status = third.wait_phase(Phase::Failed, PATIENCE).await.unwrap();
    let message = status.message.unwrap();
    assert!(
        message.contains("aliyun.com/gpu-mem") && message.contains("Requested: 2"),
        "{message}"
    );
    assert!(message.contains("Available: 1"), "{message}");

    second.delete();
    second.wait_gone(PATIENCE).await.unwrap();
    let greedy = node.kubelet().admit(of("greedy", 7, "8Gi"));
    wait_or(
        "the eighth GiB is refused",
        || greedy.log("c"),
        || greedy.log("c").contains("CUDA_ERROR_OUT_OF_MEMORY"),
    )
    .await;
    assert_eq!(first.status().phase, Phase::Running);
    assert_eq!(first.status().containers["c"].restarts, 0);
    assert!(!first.log("c").contains("OUT_OF_MEMORY"));
    assert_eq!(node.kubelet().violations(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_says_which_cards_it_has_until_it_is_not_shared_any_more() {
    let node = labelled().await;
    let card = |check: fn(&mpshare_api::inventory_annotation::NodeGpu) -> bool| {
        annotation(&node).is_some_and(|gpus| gpus.0.len() == 1 && check(&gpus.0[0]))
    };
    wait("the card is published", || card(|gpu| gpu.is_ready() && gpu.units == 15)).await;
    node.kube().remove_node_label(NODE, "ack.node.gpu.schedule").await.unwrap();
    label(&node, 1).await;
    node.kubelet().wait_allocatable(GPU, 1, PATIENCE).await.unwrap();
    wait("no cards are published", || annotation(&node).is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shares_survive_the_way_from_units_of_memory_to_replicas_and_back() {
    let node = labelled().await;
    let amount = hold(&node, of("amount", 7, "6Gi")).await;
    let pids = amount.status().pids();
    node.kube().remove_node_label(NODE, "ack.node.gpu.schedule").await.unwrap();
    label(&node, 2).await;
    // The card keeps its daemon for the one share, and offers nothing beside it.
    wait("the old units have gone", || {
        node.kubelet().allocatable(MEM) == 7 && node.kubelet().allocatable(GPU) == 0
    })
    .await;
    assert_eq!(amount.status().pids(), pids);
    amount.delete();
    amount.wait_gone(PATIENCE).await.unwrap();
    node.kubelet().wait_allocatable(GPU, 2, PATIENCE).await.unwrap();
    let half = hold(&node, client("half", 1, "4Gi")).await;
    let half_pids = half.status().pids();

    let key = "nvidia.com/device-plugin.config";
    node.kube().patch_node_label(NODE, key, "gpu-mem").await.unwrap();
    wait("the half is all that is left", || node.kubelet().allocatable(GPU) == 1).await;
    assert_eq!((half.status().pids(), node.kubelet().allocatable(MEM)), (half_pids, 0));
    half.delete();
    half.wait_gone(PATIENCE).await.unwrap();
    node.kubelet().wait_allocatable(MEM, 15, PATIENCE).await.unwrap();
    assert_eq!(node.kubelet().violations(), []);
}
