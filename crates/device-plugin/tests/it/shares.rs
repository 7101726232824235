//! What a container gets.

use mpshare_testkit::fakekubelet::Phase;

use crate::setup::{GPU, Node, SOON, given, sleeper, stays};
use crate::supervisor::T4;

#[tokio::test]
async fn one_unit_is_its_part_of_one_card_in_memory_and_threads() {
    let (node, _plugin) = Node::ready(2, 4).await;
    let pod = node.running("a", 1).await;
    let card = node.shares()[0].gpu.to_string();
    let env = given(&pod);
    let memory = if card == T4 { "0=7680M" } else { "0=16384M" };
    assert_eq!(env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"], memory);
    assert_eq!(env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"], "50.0");
    assert_eq!(env["CUDA_MPS_PIPE_DIRECTORY"], "/mps/nvidia.com/gpu/pipe");
    assert_eq!(env["NVIDIA_VISIBLE_DEVICES"], card);
    assert_eq!(env["CUDA_VISIBLE_DEVICES"], card);
    let mounts = pod.status().containers["main"].options.mounts.clone();
    let paths = node.root.gpu(&GPU.parse().unwrap(), &card.parse().unwrap());
    assert_eq!(mounts[0].host_path, paths.pipe().display().to_string());
    assert!(mounts[0].read_only);
    assert_eq!(mounts[1].host_path, paths.shm().display().to_string());
    assert_eq!(mounts[1].container_path, "/dev/shm");
    assert!(!mounts[1].read_only);
    node.check();
}

#[tokio::test]
async fn n_units_are_n_times_one_unit_of_one_card() {
    let (node, _plugin) = Node::ready(4, 8).await;
    let pod = node.running("a", 3).await;
    let shares = node.shares();
    assert_eq!(shares.len(), 1);
    assert_eq!(shares[0].ids.len(), 3);
    let mib = if shares[0].gpu.as_str() == T4 { 3 * 3840 } else { 3 * 8192 };
    let env = given(&pod);
    assert_eq!(env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"], format!("0={mib}M"));
    assert_eq!(env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"], "75.0");
    node.check();
}

#[tokio::test]
async fn a_request_that_no_one_card_can_meet_is_refused_with_the_numbers() {
    let (node, _plugin) = Node::ready(2, 4).await;
    node.running("a", 1).await;
    node.running("b", 1).await;
    let mut cards: Vec<String> = node.shares().iter().map(|share| share.gpu.to_string()).collect();
    cards.sort();
    cards.dedup();
    assert_eq!(cards.len(), 2, "the policy is `distributed`");
    let message = node.refusal("c", 2).await;
    for part in ["2 units", "`GPU-00000000`: 1", "`GPU-11111111`: 1", "hint:"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    node.running("d", 1).await;
    node.check();
}

#[tokio::test]
async fn pods_that_come_at_once_fill_the_node_and_no_more() {
    let (node, _plugin) = Node::ready(4, 8).await;
    let pods: Vec<_> = (0..10).map(|n| node.admit(&format!("p{n}"), 1)).collect();
    let mut running = 0;
    for pod in &pods {
        let settled = |phase| matches!(phase, Phase::Running | Phase::Failed);
        let status = pod.wait("settled", SOON, |status| settled(status.phase)).await.unwrap();
        running += usize::from(status.phase == Phase::Running);
    }
    assert_eq!(running, 8);
    assert_eq!(node.shares().len(), 8);
    node.check();
}

#[tokio::test]
async fn the_units_of_a_pod_that_ended_are_free_again() {
    let (node, _plugin) = Node::ready(2, 4).await;
    for round in 0..3 {
        let mut pods = Vec::new();
        for n in 0..4 {
            pods.push(node.running(&format!("r{round}-{n}"), 1).await);
        }
        node.check();
        for pod in pods {
            pod.delete();
            pod.wait_gone(SOON).await.unwrap();
        }
    }
    node.shares_are(0).await;
    node.check();
}

#[tokio::test]
async fn whole_cards_come_without_mps_and_several_to_one_container() {
    let node = Node::without_config().await;
    node.configure("mps-1x", "sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 1}]}}");
    let _plugin = node.start();
    node.allocatable(2).await;
    let pod = node.running("a", 2).await;
    let env = given(&pod);
    assert!(env.keys().all(|name| !name.starts_with("CUDA_MPS")), "{env:?}");
    assert_eq!(env["NVIDIA_VISIBLE_DEVICES"].split(',').count(), 2);
    assert_eq!(pod.status().containers["main"].options.mounts, []);
    node.check();
}

#[tokio::test]
async fn an_init_container_hands_its_unit_to_the_app_container() {
    let (node, _plugin) = Node::ready(2, 4).await;
    let spec = mpshare_testkit::fakekubelet::pod("a")
        .init_container("prepare")
        .gpus(GPU, 1)
        .shell("sleep 2")
        .container("main")
        .gpus(GPU, 1)
        .command(["sleep", "600"]);
    let pod = node.kubelet.admit(spec);
    pod.wait_phase(Phase::Running, SOON).await.unwrap();
    assert_eq!(pod.devices("prepare", GPU), pod.devices("main", GPU));
    node.shares_are(1).await;
    node.running("b", 1).await;
    node.check();
}

#[tokio::test]
async fn a_share_that_only_an_init_container_holds_stays_held_while_it_runs() {
    let (node, _plugin) = Node::ready(2, 4).await;
    let spec = mpshare_testkit::fakekubelet::pod("a")
        .init_container("prepare")
        .gpus(GPU, 1)
        .shell("sleep 600")
        .container("main")
        .command(["sleep", "600"]);
    let pod = node.kubelet.admit(spec);
    let started = pod
        .wait("init container runs", SOON, |status| status.containers["prepare"].pid().is_some());
    started.await.unwrap();
    // Longer than a share may be without a holder.
    let long = node.options.timings.admission * 2;
    stays("share on record", long, || node.shares().len() == 1).await;
    pod.force_delete();
    node.running("b", 1).await;
    node.check();
}

#[tokio::test]
async fn a_pod_that_is_rejected_after_its_allocation_gives_its_units_back() {
    let (node, _plugin) = Node::ready(2, 4).await;
    let pod = node.kubelet.admit(sleeper("a", 2).rejected_by_predicates("OutOfcpu"));
    pod.wait_phase(Phase::Failed, SOON).await.unwrap();
    assert_eq!(node.shares().len(), 1);
    node.shares_are(0).await;
    node.check();
}
