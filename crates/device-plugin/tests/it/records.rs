//! Records that are lost, can't be written, or are overtaken by a kill.

use std::time::Duration;

use mpshare_testkit::fakekubelet::Phase;
use tokio::net::UnixListener;

use crate::setup::{GPU, Node, Plugin, SOON, given, stays};

#[tokio::test]
async fn lost_and_damaged_records_are_rebuilt_from_what_the_kubelet_keeps() {
    let (node, mut plugin) = Node::ready(4, 8).await;
    node.running("a", 1).await;
    node.running("b", 3).await;
    let mut before = node.shares();
    before.sort_by_key(|share| share.ids.clone());
    for damage in ["{ \"version\": 1, \"rec", ""] {
        plugin.kill().await;
        if damage.is_empty() {
            std::fs::remove_file(node.root.allocations()).unwrap();
        } else {
            std::fs::write(node.root.allocations(), damage).unwrap();
        }
        plugin = node.start();
        node.allocatable(8).await;
        node.shares_are(2).await;
        let mut after = node.shares();
        after.sort_by_key(|share| share.ids.clone());
        assert_eq!(after, before);
    }
    let message = node.refusal("c", 4).await;
    assert!(message.contains("hint:"), "{message}");
    node.check();
}

#[tokio::test]
async fn a_share_that_cannot_be_recorded_is_refused_with_the_reason() {
    let (node, _plugin) = Node::ready(2, 4).await;
    // As a full disk: the new file can't take the old one's place. The plugin may write it once
    // more when it is gone.
    let is_in_the_way = || {
        drop(std::fs::remove_file(node.root.allocations()));
        std::fs::create_dir(node.root.allocations()).is_ok()
    };
    while !is_in_the_way() {}
    let message = node.refusal("a", 1).await;
    assert!(message.contains("couldn't be recorded"), "{message}");
    assert!(message.contains("allocations.json"), "{message}");
    std::fs::remove_dir(node.root.allocations()).unwrap();
    node.running("b", 1).await;
    node.check();
}

#[tokio::test]
async fn a_plugin_that_is_killed_at_any_moment_loses_no_share() {
    let (node, mut plugin) = Node::ready(4, 8).await;
    let mut kept = Vec::new();
    for round in 0..20_u64 {
        let pod = node.admit(&format!("p{round}"), 1);
        tokio::time::sleep(Duration::from_millis(round * 7 % 40)).await;
        plugin.kill().await;
        plugin = node.start();
        node.allocatable(8).await;
        let settled = |phase| matches!(phase, Phase::Running | Phase::Failed);
        let status = pod.wait("settled", SOON, |status| settled(status.phase)).await.unwrap();
        if status.phase == Phase::Running {
            kept.push(pod);
        }
        if kept.len() > 4 {
            let pod = kept.remove(0);
            pod.delete();
            pod.wait_gone(SOON).await.unwrap();
        }
        node.check();
        let ids = |pod: &mpshare_testkit::fakekubelet::PodHandle| pod.devices("main", GPU);
        let recorded: Vec<String> = node
            .shares()
            .iter()
            .flat_map(|share| share.ids.iter().map(ToString::to_string))
            .collect();
        for id in kept.iter().flat_map(ids) {
            assert!(recorded.contains(&id), "{id} is held and not recorded");
        }
    }
    assert!(kept.len() > 2, "pods came through");
}

#[tokio::test]
async fn a_hung_or_absent_pod_resources_socket_holds_up_nobody_and_frees_nothing() {
    let (mut node, plugin) = Node::ready(2, 4).await;
    plugin.stop().await;
    let mute = node.root.path().join("mute.sock");
    let _listener = UnixListener::bind(&mute).unwrap();
    let absent = node.root.path().join("absent.sock");
    node.options.timings.call = Duration::from_millis(200);
    for (held, socket) in [(1, mute), (2, absent)] {
        node.options.pod_resources_socket = socket;
        let plugin = Plugin::start(node.options.clone());
        node.allocatable(4).await;
        let pod = node.running("a", 1).await;
        pod.delete();
        pod.wait_gone(SOON).await.unwrap();
        let long = node.options.timings.admission * 2;
        stays("share on record", long, || node.shares().len() == held).await;
        node.check();
        plugin.stop().await;
    }
    // The kubelet's own socket tells.
    node.options.pod_resources_socket = node.kubelet.options().pod_resources_socket.clone();
    let _plugin = node.start();
    node.shares_are(0).await;
    let pod = node.running("b", 2).await;
    assert_eq!(given(&pod)["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"], "100.0");
    node.check();
}
