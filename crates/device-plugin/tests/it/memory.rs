//! Cards in units of memory.

use mpshare_testkit::fakekubelet::{Phase, PodHandle, PodSpec, pod};

use crate::setup::{GPU, Node, SOON, given, wait_until};
use crate::supervisor::T4;

const MEM: &str = "aliyun.com/gpu-mem";

/// T4: 15 units; V100: 32.
const GIB: &str = "flags: {plugin: {sharedDevicesAllocationPolicy: packed}}
sharing: {mps: {resources: [{name: aliyun.com/gpu-mem, memoryUnit: 1Gi}]}}";

fn of(name: &str, units: usize) -> PodSpec {
    pod(name)
        .container("main")
        .gpus(MEM, units)
        .command(["sleep", "600"])
        .grace(std::time::Duration::ZERO)
}

async fn running(node: &Node, name: &str, units: usize) -> PodHandle {
    let pod = node.kubelet.admit(of(name, units));
    pod.wait_phase(Phase::Running, SOON).await.unwrap();
    pod
}

async fn mem(node: &Node, units: usize) {
    node.kubelet.wait_allocatable(MEM, units, SOON).await.unwrap();
}

async fn in_units() -> (Node, crate::setup::Plugin) {
    let node = Node::without_config().await;
    node.configure("gpu-mem", GIB);
    let plugin = node.start();
    mem(&node, 47).await;
    (node, plugin)
}

#[tokio::test]
async fn a_container_gets_exactly_its_units_of_one_card_and_is_told_so() {
    let (node, _plugin) = in_units().await;
    let pod = running(&node, "a", 7).await;
    let env = given(&pod);
    for (name, value) in [
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=7168M"),
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100.0"),
        ("CUDA_MPS_PIPE_DIRECTORY", "/mps/aliyun.com/gpu-mem/pipe"),
        ("NVIDIA_VISIBLE_DEVICES", T4),
        ("ALIYUN_COM_GPU_MEM_IDX", "0"),
        ("ALIYUN_COM_GPU_MEM_POD", "7"),
        ("ALIYUN_COM_GPU_MEM_CONTAINER", "7"),
        ("ALIYUN_COM_GPU_MEM_DEV", "15"),
    ] {
        assert_eq!(env[name], value, "{name}");
    }
    assert!(pod.devices("main", MEM).iter().all(|id| id.starts_with(T4)));
    node.check();
}

#[tokio::test]
async fn threads_are_nobodys_and_memory_is_what_runs_out() {
    let (node, _plugin) = in_units().await;
    for name in ["a", "b", "c", "d"] {
        running(&node, name, 7).await;
    }
    // T4: 14 of 15; V100: 14 of 32, which a request of 19 doesn't find.
    let refused = node.kubelet.admit(of("wide", 19));
    let status = refused.wait_phase(Phase::Failed, SOON).await.unwrap();
    assert_eq!(status.reason.as_deref(), Some("UnexpectedAdmissionError"));
    let message = status.message.unwrap();
    for part in ["19 units asked", "`GPU-00000000`: 1", "`GPU-11111111`: 18", "hint:"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    running(&node, "rest", 18).await;
    running(&node, "last", 1).await;
    mem(&node, 47).await;
    node.check();
    assert_eq!(node.shares().iter().map(|share| share.ids.len()).sum::<usize>(), 47);
}

#[tokio::test]
async fn between_replicas_and_units_of_memory_no_share_dies_or_changes_and_none_is_too_much() {
    let (node, _plugin) = Node::ready(2, 4).await;
    let half = node.running("half", 1).await;
    let card = node.shares()[0].gpu.to_string();
    let free = if card == T4 { 32 } else { 15 };

    node.configure("gpu-mem", GIB);
    // The card without a share switches at once, the other one when its share has ended.
    mem(&node, free).await;
    node.allocatable(1).await;
    let amount = running(&node, "amount", 7).await;
    assert_ne!(node.shares()[1].gpu.as_str(), card);
    node.check();
    half.delete();
    half.wait_gone(SOON).await.unwrap();
    mem(&node, 47).await;
    wait_until("the old resource is gone", || node.kubelet.capacity(GPU) == 0).await;

    let given_before = given(&amount);
    node.share(4);
    node.allocatable(4).await;
    mem(&node, 7).await;
    assert_eq!(given(&amount), given_before);
    node.running("quarter", 1).await;
    node.check();
    amount.delete();
    amount.wait_gone(SOON).await.unwrap();
    node.allocatable(8).await;
    node.check();
}

#[tokio::test]
async fn containers_up_to_the_clients_of_a_card_and_no_more_share_it() {
    let node = Node::without_config().await;
    let units = "memoryUnit: 256Mi, devices: [GPU-00000000-0000-0000-0000-000000000000]";
    let text = GIB.replace("memoryUnit: 1Gi", units);
    node.configure("gpu-mem", &text);
    let _plugin = node.start();
    mem(&node, 60).await;
    for n in 0..48 {
        running(&node, &format!("p{n}"), 1).await;
    }
    // The other 12 are backed by memory, but not by clients.
    mem(&node, 48).await;
    let (healthy, all) = node.units(MEM);
    assert_eq!((healthy, all), (48, 60));
    node.check();
}

#[tokio::test]
async fn a_killed_plugin_comes_back_to_the_same_units_and_its_shares() {
    let (node, plugin) = in_units().await;
    running(&node, "a", 7).await;
    plugin.kill().await;
    mem(&node, 0).await;
    std::fs::remove_file(node.root.allocations()).unwrap();
    let _plugin = node.start();
    mem(&node, 47).await;
    node.shares_are(1).await;
    assert_eq!(node.shares()[0].share.memory.mib(), 7168);
    assert_eq!(node.shares()[0].share.percent.tenths(), 1000);
    running(&node, "b", 8).await;
    node.check();
}
