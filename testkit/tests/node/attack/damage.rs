//! The node's files, damaged by an operator or a machine that went down.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use mpshare_api::{Allocations, GpuState, read_document};
use mpshare_sim_state::ComputeMode;
use mpshare_testkit::simnode::{Role, Setup, SimNode};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;

use super::{check, clear, log_lines, logged, pid_of, resident_mib};
use crate::scene::{
    GPU, PATIENCE, client, hold, label, logs, ready, running, supervised, wait, wait_or,
    write_config,
};

/// What is put in the place of a file.
const DAMAGES: [&str; 8] =
    ["garbage", "empty", "huge", "fifo", "endless", "nowhere", "version", "gone"];

fn damage(path: &Path, how: &str) {
    let is_file = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file());
    let former = if is_file { std::fs::read_to_string(path).unwrap() } else { String::new() };
    // Renamed into its place, because the writer may be quick to repair it.
    let odd = path.with_extension("odd");
    match how {
        "garbage" => std::fs::write(&odd, "\u{0}{]\u{7}").unwrap(),
        "empty" => std::fs::write(&odd, "").unwrap(),
        "huge" => std::fs::write(&odd, vec![b' '; 10 << 20]).unwrap(),
        "fifo" => mknodat(CWD, &odd, FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap(),
        "endless" => symlink("/dev/zero", &odd).unwrap(),
        "nowhere" => symlink("/nonexistent/file", &odd).unwrap(),
        "version" => {
            std::fs::write(&odd, former.replace("\"version\": 1", "\"version\": 77")).unwrap();
        }
        "gone" => return clear(path),
        _ => panic!("no damage `{how}`"),
    }
    std::fs::rename(&odd, path).unwrap();
}

fn assert_small(node: &SimNode) {
    for role in Role::ALL {
        let mib = resident_mib(pid_of(node, role));
        assert!(mib < 64, "{role} takes {mib} MiB");
    }
}

/// While everything runs, one file after the other is damaged; the node goes on and follows.
async fn survives(how: &str) {
    let mut node = running(Setup::two_cards(), 2).await;
    let pod = hold(&node, client("old", 1, "1Gi")).await;
    let pids = pod.status().pids();
    let root = node.mps_root();
    let files = [root.status(), root.allocations(), root.config(), root.compute_modes()];
    for path in &files {
        damage(path, how);
    }
    for role in Role::ALL {
        let more = || format!("{how}: {}", logs(&node));
        wait_or("the files are whole again", more, || {
            node.status().is_some_and(|status| status.version == 1)
                && read_document::<Allocations>(&root.allocations())
                    .is_ok_and(|read| read.is_some_and(|read| read.records.len() == 1))
        })
        .await;
        wait_or(&format!("{role} works"), more, || node.kubelet().allocatable(GPU) == 4).await;
    }
    label(&node, 4).await;
    if let Err(error) = node.kubelet().wait_allocatable(GPU, 7, PATIENCE).await {
        panic!("{how}: {error}\n{}", logs(&node));
    }
    assert_small(&node);
    assert_eq!(node.ended_roles(), [], "{how}: {}", logs(&node));
    assert_eq!(pod.status().pids(), pids);
    // And at the start.
    for role in Role::ALL {
        node.end_role(role, Signal::KILL).unwrap();
    }
    for path in &files {
        damage(path, how);
    }
    // No runtime starts a container sooner, and the kubelet has to notice the end of the old one.
    tokio::time::sleep(Duration::from_millis(200)).await;
    node.start_product().unwrap();
    label(&node, 3).await;
    if let Err(error) = node.kubelet().wait_allocatable(GPU, 5, PATIENCE).await {
        panic!("{how}, at the start: {error}\n{}", logs(&node));
    }
    hold(&node, client("new", 1, "1Gi")).await;
    assert_small(&node);
    check(&node);
    assert_eq!(node.ended_roles(), [], "{how}: {}", logs(&node));
    assert_eq!(pod.status().pids(), pids, "{how}");
    for role in Role::ALL {
        let lines = log_lines(&node, role);
        assert!(lines < 200, "{how}: {role} logged {lines} lines");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_files_of_every_kind_are_overcome() {
    let mut nodes = tokio::task::JoinSet::new();
    for how in DAMAGES {
        nodes.spawn(survives(how));
    }
    while let Some(ended) = nodes.join_next().await {
        ended.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_root_deleted_under_a_running_node_is_overcome() {
    let mut node = running(Setup::two_cards(), 2).await;
    let pod = hold(&node, client("old", 1, "1Gi")).await;
    // Again and again, because somebody writes all the time.
    wait("the root is gone", || std::fs::remove_dir_all(node.mps_root().path()).is_ok()).await;
    // The daemons lost their directories and can't be reached any more; what counts is that
    // nothing is promised that can't be kept, and that it is told.
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        check(&node);
        assert!(!pod.log("c").contains("CUDA_ERROR"), "its client was ended: {}", pod.log("c"));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    pod.force_delete();
    pod.wait_gone(PATIENCE).await.unwrap();
    label(&node, 4).await;
    if let Err(error) = node.kubelet().wait_allocatable(GPU, 8, PATIENCE).await {
        panic!("{error}\n{:#?}\n{}", node.status(), logs(&node));
    }
    hold(&node, client("new", 1, "1Gi")).await;
    check(&node);
    assert_eq!(node.ended_roles(), [], "{}", logs(&node));
    for role in Role::ALL {
        let lines = log_lines(&node, role);
        assert!(lines < 200, "{role} logged {lines} lines\n{}", logs(&node));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_file_that_is_a_directory_is_told_once_and_no_share_is_granted_blindly() {
    let mut node = running(Setup::two_cards(), 2).await;
    let path = node.mps_root().status();
    // Again and again, because the supervisor puts the file back.
    wait("a directory is there", || {
        clear(&path);
        std::fs::create_dir(&path).is_ok()
    })
    .await;
    wait_or("no unit is offered", || logs(&node), || node.kubelet().allocatable(GPU) == 0).await;
    label(&node, 3).await;
    wait("it is told", || logged(&node, Role::Supervisor, "status can't be written") > 0).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(node.ended_roles(), []);
    let told = logged(&node, Role::Supervisor, "status can't be written");
    assert!(told <= 2, "told {told} times\n{}", logs(&node));
    std::fs::remove_dir(&path).unwrap();
    if let Err(error) = node.kubelet().wait_allocatable(GPU, 6, PATIENCE).await {
        panic!("{error}\n{}", logs(&node));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_journal_of_compute_modes_leaves_no_card_closed_for_whole_card_pods() {
    let mut node = supervised(Setup::two_cards(), 2).await;
    ready(&node, 0).await;
    node.end_role(Role::Supervisor, Signal::KILL).unwrap();
    damage(&node.mps_root().compute_modes(), "garbage");
    node.start_role(Role::Supervisor).unwrap();
    ready(&node, 0).await;
    write_config(&node, 1);
    crate::scene::card(&node, 0, "whole", |card| {
        card.state == GpuState::Ready && card.generation.starts_with("exclusive")
    })
    .await;
    assert_eq!(node.store().read().unwrap().gpus[0].compute_mode, ComputeMode::Default);
}
