//! Config changes under running pods.

use std::time::{Duration, Instant};

use mpshare_testkit::fakekubelet::Phase;

use crate::setup::{GPU, Node, SOON, given, wait_until};
use crate::supervisor::T4;

#[tokio::test]
async fn an_idle_node_follows_a_config_change_at_once() {
    let (node, _plugin) = Node::ready(2, 4).await;
    let start = Instant::now();
    node.share(4);
    node.allocatable(8).await;
    let took = start.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
    node.share(2);
    node.allocatable(4).await;
    wait_until("former ids have left", || node.units(GPU) == (4, 4)).await;
    node.check();
}

#[tokio::test]
async fn a_change_never_withdraws_what_stays_on_offer() {
    let (node, _plugin) = Node::ready(2, 4).await;
    node.supervisor.set(|wishes| wishes.is_away = true).await;
    let before = node.kubelet.device_list(GPU).unwrap();
    node.share(4);
    // While the supervisor is away the change can't be verified: the old units stay for a while,
    // new ones aren't offered, and in the end nothing is.
    let list = node.kubelet.wait_list(GPU, before.at, SOON, |_| true).await.unwrap();
    assert_eq!((list.amounts.allocatable, list.amounts.capacity), (4, 8));
    node.allocatable(0).await;
    node.supervisor.set(|wishes| wishes.is_away = false).await;
    node.allocatable(8).await;
    node.check();
}

#[tokio::test]
async fn shares_of_a_former_config_keep_their_size_and_nothing_is_given_twice() {
    let (node, _plugin) = Node::ready(4, 8).await;
    let mut old = Vec::new();
    for n in 0..6 {
        old.push(node.running(&format!("old{n}"), 1).await);
    }
    let envs: Vec<_> = old.iter().map(given).collect();
    node.share(2);
    // Each card has three old quarters: no half is left.
    node.allocatable(6).await;
    node.check();
    let refused = node.admit("early", 1);
    refused.wait_phase(Phase::Failed, SOON).await.unwrap();

    // Two quarters of the T4 end: one half is free.
    let on_t4 = |pod: &&mpshare_testkit::fakekubelet::PodHandle| {
        pod.devices("main", GPU).iter().all(|id| id.starts_with(T4))
    };
    for pod in old.iter().filter(on_t4).take(2) {
        pod.delete();
        pod.wait_gone(SOON).await.unwrap();
    }
    node.shares_are(4).await;
    node.allocatable(5).await;
    let half = node.running("half", 1).await;
    assert_eq!(given(&half)["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"], "0=7680M");
    node.check();

    node.share(4);
    // T4: a quarter and a half, one quarter left; V100: three quarters, one left.
    node.allocatable(7).await;
    node.running("new0", 1).await;
    node.running("new1", 1).await;
    node.check();
    let alive = old.iter().filter(|pod| pod.status().phase == Phase::Running && !pod.status().gone);
    for pod in alive {
        let n = old.iter().position(|other| other.uid() == pod.uid()).unwrap();
        assert_eq!(given(pod), envs[n], "a share never changes");
    }
}

#[tokio::test]
async fn a_resource_that_the_config_no_longer_names_is_given_up_and_comes_back() {
    let (node, _plugin) = Node::ready(2, 4).await;
    let pod = node.running("a", 1).await;
    node.configure(
        "renamed",
        "sharing: {mps: {resources: [{name: nvidia.com/gpu, rename: nvidia.com/gpu.shared, replicas: 2}]}}",
    );
    // The card without a share follows at once; the other one keeps its share.
    node.kubelet.wait_allocatable("nvidia.com/gpu.shared", 2, SOON).await.unwrap();
    node.allocatable(1).await;
    pod.delete();
    pod.wait_gone(SOON).await.unwrap();
    node.kubelet.wait_allocatable("nvidia.com/gpu.shared", 4, SOON).await.unwrap();
    wait_until("capacity 0", || node.kubelet.capacity(GPU) == 0).await;
    node.share(2);
    node.allocatable(4).await;
    node.check();
}

#[tokio::test]
async fn config_changes_and_pods_at_once_never_over_commit() {
    let (node, _plugin) = Node::ready(4, 8).await;
    let mut pods = Vec::new();
    for round in 0..12_u32 {
        node.share([2, 4, 3, 8][usize::try_from(round % 4).unwrap()]);
        for n in 0..3 {
            pods.push(node.admit(&format!("r{round}-{n}"), 1));
        }
        if round % 3 == 2 {
            for pod in pods.drain(..5) {
                pod.delete();
            }
        }
        for pod in &pods {
            let settled = |phase| matches!(phase, Phase::Running | Phase::Failed);
            pod.wait("settled", SOON, |status| settled(status.phase)).await.unwrap();
        }
        node.check();
    }
}
