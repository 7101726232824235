//! Coming to the kubelet, and coming back.

use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use mpshare_api::{PluginStatus, read_document};

use crate::setup::{GPU, Node, SOON, stays, wait_until};
use crate::supervisor::T4;

#[tokio::test]
async fn registers_with_the_right_list_as_soon_as_the_supervisor_has_judged() {
    let node = Node::without_config().await;
    node.supervisor.set(|wishes| wishes.is_away = true).await;
    let plugin = node.start();
    node.share(2);
    node.supervisor.set(|wishes| wishes.is_away = false).await;
    node.allocatable(4).await;
    let list = node.kubelet.device_list(GPU).unwrap();
    assert_eq!(list.count, 1, "the first list was right");
    node.check();
    plugin.stop().await;
}

#[tokio::test]
async fn registers_within_20_ms_of_a_report_that_is_there() {
    let node = Node::sharing(2).await;
    wait_until("report", || node.root.status().exists()).await;
    let start = Instant::now();
    let plugin = node.start();
    node.allocatable(4).await;
    let took = start.elapsed();
    // The figure is 20 ms on an idle machine; a busy one gets ten times as much.
    assert!(took < Duration::from_millis(200), "{took:?}");
    plugin.stop().await;
}

#[tokio::test]
async fn a_broken_card_is_offered_as_unhealthy_and_comes_back() {
    let (node, _plugin) = Node::ready(2, 4).await;
    node.supervisor.set(|wishes| wishes.broken = vec![T4.into()]).await;
    node.allocatable(2).await;
    assert_eq!(node.units(GPU), (2, 4), "all units of the card, and only those");
    node.supervisor.set(|wishes| wishes.broken.clear()).await;
    node.allocatable(4).await;
    node.check();
}

#[tokio::test]
async fn a_restarted_kubelet_has_the_same_units_within_a_second() {
    let (node, _plugin) = Node::ready(4, 8).await;
    let pod = node.running("a", 1).await;
    let held = pod.devices("main", GPU);
    let ids = node.kubelet.device_ids(GPU);
    for _ in 0..3 {
        node.kubelet.restart().await.unwrap();
        let start = Instant::now();
        node.allocatable(8).await;
        let took = start.elapsed();
        assert!(took < Duration::from_secs(1), "{took:?}");
        assert_eq!(node.kubelet.device_ids(GPU), ids);
        assert_eq!(pod.devices("main", GPU), held);
    }
    node.running("b", 1).await;
    node.check();
}

#[tokio::test]
async fn a_kubelet_that_stays_away_for_a_while_is_found_again() {
    let (node, _plugin) = Node::ready(2, 4).await;
    node.kubelet.stop().await;
    // Long enough for attempts to fail, at growing pauses.
    let absent = Duration::from_millis(700);
    stays("no kubelet", absent, || node.kubelet.allocatable(GPU) == 0).await;
    node.kubelet.resume().await.unwrap();
    let start = Instant::now();
    node.allocatable(4).await;
    let took = start.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
    node.check();
}

#[tokio::test]
async fn a_kubelet_that_does_not_answer_is_tried_at_growing_pauses() {
    let (node, _plugin) = Node::ready(2, 4).await;
    node.kubelet.stop().await;
    let socket = node.options.plugins_dir.join("kubelet.sock");
    std::fs::remove_file(&socket).unwrap();
    let mute = UnixListener::bind(&socket).unwrap();
    mute.set_nonblocking(true).unwrap();
    let mut attempts = 0;
    let second = Duration::from_secs(1);
    stays("no kubelet", second, || {
        while mute.accept().is_ok() {
            attempts += 1;
        }
        node.kubelet.allocatable(GPU) == 0
    })
    .await;
    // 10, 20, 40, ... 640 ms, each shortened to the half at most.
    assert!((2..=10).contains(&attempts), "{attempts} attempts within {second:?}");
}

#[tokio::test]
async fn kubelets_that_die_one_after_another_are_nobody_elses_doing() {
    let (node, _plugin) = Node::ready(2, 4).await;
    let ours = node.options.plugins_dir.join("mpshare-nvidia.com_gpu.sock");
    let identity = || std::fs::metadata(&ours).ok().map(|meta| (meta.ino(), meta.ctime_nsec()));
    for _ in 0..4 {
        let before = identity();
        node.kubelet.stop().await;
        wait_until("the plugin notices", || identity() != before).await;
        node.kubelet.resume().await.unwrap();
        node.allocatable(4).await;
    }
    let told = || read_document::<PluginStatus>(&node.root.plugin_status()).unwrap();
    let problems = move || told().is_some_and(|status| !status.reasons.is_empty());
    stays("no rival is told", Duration::from_millis(200), || !problems()).await;
}

#[tokio::test]
async fn a_socket_that_somebody_deleted_is_made_again() {
    let (node, _plugin) = Node::ready(2, 4).await;
    let socket = node.options.plugins_dir.join("mpshare-nvidia.com_gpu.sock");
    let before = node.kubelet.device_list(GPU).unwrap().at;
    std::fs::remove_file(&socket).unwrap();
    let any = node.kubelet.wait_list(GPU, before, SOON, |amounts| amounts.allocatable == 4);
    any.await.unwrap();
    assert!(socket.exists());
    node.check();
}

#[tokio::test]
async fn two_of_them_take_turns() {
    let (node, first) = Node::ready(2, 4).await;
    let before = node.kubelet.device_list(GPU).unwrap();
    let _second = node.start();
    let long = Duration::from_millis(500);
    stays("registration", long, || node.kubelet.device_list(GPU) == Some(before)).await;
    first.stop().await;
    let list = node.kubelet.wait_list(GPU, before.at, SOON, |amounts| amounts.allocatable == 4);
    list.await.unwrap();
    node.check();
}

#[tokio::test]
async fn the_mps_root_may_be_deleted_and_made_again() {
    let (node, _plugin) = Node::ready(2, 4).await;
    node.supervisor.set(|wishes| wishes.is_away = true).await;
    std::fs::remove_dir_all(node.root.path()).unwrap();
    node.allocatable(0).await;
    wait_until("root directory", || node.root.path().exists()).await;
    node.share(4);
    node.supervisor.set(|wishes| wishes.is_away = false).await;
    node.allocatable(8).await;
    node.check();
}

#[tokio::test]
async fn without_a_report_on_every_card_it_registers_after_a_while_with_what_there_is() {
    let mut node = Node::sharing(2).await;
    node.options.timings.first_status = Duration::from_millis(100);
    // A report of a former config is all that there is.
    wait_until("report", || node.root.status().exists()).await;
    node.supervisor.set(|wishes| wishes.is_away = true).await;
    node.share(4);
    let _plugin = node.start();
    wait_until("registration", || node.units(GPU).1 == 8).await;
    assert_eq!(node.units(GPU), (0, 8));
    node.check();
}

#[tokio::test]
async fn while_nvidias_plugin_answers_for_the_resource_ours_waits_and_says_so() {
    let node = Node::sharing(2).await;
    let socket = node.options.plugins_dir.join("nvidia-gpu.sock");
    let rival = UnixListener::bind(&socket).unwrap();
    let plugin = node.start();
    wait_until("reason", || node.root.plugin_status().exists()).await;
    let status: PluginStatus = read_document(&node.root.plugin_status()).unwrap().unwrap();
    assert_eq!(status.reasons[0].code, "AnotherPlugin");
    let answers = format!("something answers on `{}`", socket.display());
    assert!(status.reasons[0].message.contains(&answers), "{}", status.reasons[0].message);
    assert_eq!(node.units(GPU), (0, 0));
    drop(rival);
    node.allocatable(4).await;
    wait_until("no reason", || !node.root.plugin_status().exists()).await;
    plugin.stop().await;
}

#[tokio::test]
async fn a_plugin_that_comes_later_is_told_and_when_it_is_gone_ours_registers_anew() {
    let (node, plugin) = Node::ready(2, 4).await;
    let socket = node.options.plugins_dir.join("nvidia-gpu.sock");
    let rival = UnixListener::bind(&socket).unwrap();
    wait_until("reason", || node.root.plugin_status().exists()).await;
    assert_eq!(node.units(GPU), (4, 4), "its end would help nobody");
    drop(rival);
    std::fs::remove_file(socket).unwrap();
    wait_until("no reason", || !node.root.plugin_status().exists()).await;
    node.allocatable(4).await;
    plugin.stop().await;
}
