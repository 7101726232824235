//! A disk that takes no more writes: something lies in the way of each temporary file, so that
//! making it fails as on a full disk.

use std::path::PathBuf;
use std::time::Duration;

use mpshare_api::{Allocations, GpuState, read_document};
use mpshare_sim_state::ComputeMode;
use mpshare_testkit::fakekubelet::Phase;
use mpshare_testkit::simnode::{NODE, Role, Setup, SimNode};

use super::{check, check_for, logged, pid_of};
use crate::scene::{
    GPU, PATIENCE, bare, card, client, hold, label, logs, ready, running, wait_or, write_config,
};

/// Keeps a role from writing a file, until it is removed.
fn obstacle(node: &SimNode, role: Role, file: &str) -> PathBuf {
    let path = node.mps_root().path().join(format!("{file}.{}.next", pid_of(node, role)));
    std::fs::create_dir_all(path.join("full")).unwrap();
    path
}

fn remove(obstacle: PathBuf) {
    std::fs::remove_dir_all(obstacle).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_recorded_is_not_granted_and_is_later() {
    let mut node = running(Setup::two_cards(), 2).await;
    let obstacle = obstacle(&node, Role::DevicePlugin, "allocations.json");
    for n in 0..5 {
        let pod = node.kubelet().admit(client(&format!("p{n}"), 1, "1Gi"));
        let status = pod.wait_phase(Phase::Failed, PATIENCE).await.unwrap();
        let message = status.message.unwrap();
        assert!(message.contains("couldn't be recorded"), "{message}");
        assert!(message.contains("hint: check the disk"), "{message}");
    }
    let records = read_document::<Allocations>(&node.mps_root().allocations()).unwrap();
    assert!(records.unwrap_or_default().records.is_empty());
    remove(obstacle);
    hold(&node, client("later", 1, "1Gi")).await;
    check(&node);
    assert_eq!(node.ended_roles(), []);
    assert!(logged(&node, Role::DevicePlugin, "") < 80, "{}", logs(&node));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_share_that_cannot_be_written_is_written_later_and_told_once() {
    let node = running(Setup::two_cards(), 2).await;
    let pod = hold(&node, client("a", 1, "1Gi")).await;
    let obstacle = obstacle(&node, Role::DevicePlugin, "allocations.json");
    pod.force_delete();
    pod.wait_stopped(PATIENCE).await.unwrap();
    let what = "allocations can't be written";
    wait_or("it is told", || logs(&node), || logged(&node, Role::DevicePlugin, what) > 0).await;
    check_for(&node, Duration::from_secs(2), || ()).await;
    let told = logged(&node, Role::DevicePlugin, what);
    assert!(told <= 2, "told {told} times\n{}", logs(&node));
    remove(obstacle);
    let path = node.mps_root().allocations();
    let is_empty = || read_document::<Allocations>(&path).unwrap().unwrap().records.is_empty();
    wait_or("the file follows", || logs(&node), is_empty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_cannot_be_written_lets_nobody_in_and_recovers() {
    let node = running(Setup::two_cards(), 2).await;
    let obstacle = obstacle(&node, Role::Supervisor, "status.json");
    let wide = node.kubelet().admit(client("wide", 2, "10Gi"));
    let narrow = node.kubelet().admit(client("narrow", 1, "1Gi"));
    check_for(&node, Duration::from_secs(2), || {
        assert!(wide.status().pids().is_empty(), "its limits were never reported");
    })
    .await;
    let told = logged(&node, Role::Supervisor, "status can't be written");
    assert!((1..=3).contains(&told), "told {told} times\n{}", logs(&node));
    remove(obstacle);
    for pod in [&wide, &narrow] {
        let running = pod.wait_phase(Phase::Running, PATIENCE).await;
        assert!(running.is_ok(), "{:?}\n{}", pod.status(), logs(&node));
    }
    check(&node);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_compute_mode_is_changed_that_could_not_be_restored() {
    let mut node = bare(Setup::two_cards()).await;
    node.start_role(Role::Supervisor).unwrap();
    std::fs::create_dir_all(node.mps_root().path()).unwrap();
    let obstacle = obstacle(&node, Role::Supervisor, "compute-modes.json");
    write_config(&node, 2);
    let status = card(&node, 0, "in fault", |card| card.state == GpuState::Fault).await;
    assert!(status.reason.unwrap().message.contains("compute mode journal"));
    check_for(&node, Duration::from_secs(2), || {
        for gpu in node.store().read().unwrap().gpus {
            assert_eq!(gpu.compute_mode, ComputeMode::Default);
        }
    })
    .await;
    remove(obstacle);
    ready(&node, 0).await;
    ready(&node, 1).await;
    write_config(&node, 1);
    for index in 0..2 {
        let is_whole = |card: &mpshare_api::GpuStatus| {
            card.generation.starts_with("exclusive") && card.state == GpuState::Ready
        };
        card(&node, index, "whole", is_whole).await;
        assert_eq!(node.store().read().unwrap().gpus[index].compute_mode, ComputeMode::Default);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_that_cannot_be_written_is_said_on_the_node_and_follows_later() {
    let node = running(Setup::two_cards(), 2).await;
    let obstacle = obstacle(&node, Role::ConfigManager, "config.yaml");
    label(&node, 4).await;
    let condition = || {
        let object = node.kube().get("nodes", "", NODE).unwrap_or_default();
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let mine = conditions.into_iter().find(|condition| condition["type"] == "MPSShareReady");
        mine.unwrap_or_default()["message"].as_str().unwrap_or_default().to_owned()
    };
    wait_or("it is said", condition, || condition().contains("can't be written")).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let told = logged(&node, Role::ConfigManager, "can't be written");
    assert!(told <= 2, "told {told} times\n{}", logs(&node));
    assert_eq!(node.kubelet().allocatable(GPU), 4);
    remove(obstacle);
    node.kubelet().wait_allocatable(GPU, 8, PATIENCE).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rests_of_writers_that_were_killed_are_in_nobodys_way() {
    let mut node = bare(Setup::two_cards()).await;
    label(&node, 2).await;
    std::fs::create_dir_all(node.mps_root().path()).unwrap();
    for file in ["config.yaml", "status.json", "allocations.json", "compute-modes.json"] {
        for pid in [1, 7, 4711] {
            let path = node.mps_root().path().join(format!("{file}.{pid}.next"));
            std::fs::write(path, "{\"version\": 1, ").unwrap();
        }
    }
    node.start_product().unwrap();
    node.kubelet().wait_allocatable(GPU, 4, PATIENCE).await.unwrap();
    hold(&node, client("a", 1, "1Gi")).await;
}
