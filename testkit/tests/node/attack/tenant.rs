//! Tenants that try to harm others.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use mpshare_api::GpuState;
use mpshare_testkit::fakekubelet::pod;
use mpshare_testkit::simnode::{Setup, SimNode};

use super::{check, check_for};
use crate::scene::{GPU, client, hold, logs, ready, running, wait_or};

fn one_card() -> Setup {
    Setup { cards: vec![Setup::two_cards().cards[0]], ..Setup::two_cards() }
}

fn processes_of(node: &SimNode, pids: &[u32]) -> usize {
    let state = node.store().read().unwrap();
    state.processes.iter().filter(|p| pids.contains(&p.id.pid.unsigned_abs())).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_on_the_daemons_socket_harms_nobody() {
    let node = running(one_card(), 2).await;
    let neighbour = hold(&node, client("neighbour", 1, "1Gi")).await;
    let daemon = ready(&node, 0).await.daemon.unwrap();
    let socket = std::path::Path::new(&daemon.pipe_directory).join("control");
    for round in 0..50_u8 {
        if let Ok(mut stream) = UnixStream::connect(&socket) {
            stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
            // It may hang up at any byte.
            drop(stream.write_all(&[round.wrapping_mul(37); 300]));
        }
    }
    crate::scene::label(&node, 4).await;
    let is_new = |card: &mpshare_api::GpuStatus| {
        card.state == GpuState::Ready && card.generation.contains("/4x")
    };
    let after = crate::scene::card(&node, 0, "ready at the new size", is_new).await;
    assert_eq!(after.daemon.unwrap().pid, daemon.pid);
    let pids: Vec<u32> = neighbour.status().pids().into_values().collect();
    assert_eq!(processes_of(&node, &pids), 1, "{}", logs(&node));
    hold(&node, client("later", 1, "1Gi")).await;
    check(&node);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_say_nothing_keep_nobody_from_the_daemon() {
    let node = running(one_card(), 2).await;
    let daemon = ready(&node, 0).await.daemon.unwrap();
    let socket = std::path::Path::new(&daemon.pipe_directory).join("control");
    let silent: Vec<UnixStream> =
        (0..20).filter_map(|_| UnixStream::connect(&socket).ok()).collect();
    crate::scene::label(&node, 4).await;
    let is_new = |card: &mpshare_api::GpuStatus| {
        card.state == GpuState::Ready && card.generation.contains("/4x")
    };
    crate::scene::card(&node, 0, "ready at the new size", is_new).await;
    hold(&node, client("later", 1, "1Gi")).await;
    drop(silent);
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_processes_of_one_tenant_end_no_process_of_its_neighbour() {
    let node = running(one_card(), 2).await;
    let neighbour = hold(&node, client("neighbour", 1, "1Gi")).await;
    let command = ["cuda-sample", "--alloc", "1Mi", "--processes", "60", "--hold", "forever"];
    let many = node.kubelet().admit(pod("many").container("c").gpus(GPU, 1).command(command));
    wait_or("the cap is reached", || many.log("c"), || many.log("c").contains("CLIENTS")).await;
    let pids: Vec<u32> = neighbour.status().pids().into_values().collect();
    check_for_alive(&node, &pids).await;
    many.force_delete();
    many.wait_stopped(Duration::from_secs(20)).await.unwrap();
    hold(&node, client("later", 1, "1Gi")).await;
    check(&node);
}

async fn check_for_alive(node: &SimNode, pids: &[u32]) {
    for _ in 0..10 {
        assert_eq!(processes_of(node, pids), 1);
        assert_eq!(ready(node, 0).await.state, GpuState::Ready);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_crashes_all_the_time_takes_no_card_out() {
    let node = running(one_card(), 2).await;
    let neighbour = hold(&node, client("neighbour", 1, "1Gi")).await;
    let script = "cuda-sample --alloc 1Gi; kill -9 $$";
    let crashes = node.kubelet().admit(pod("crashes").container("c").gpus(GPU, 1).shell(script));
    check_for(&node, Duration::from_secs(2), || {
        assert_eq!(node.status().unwrap().gpus[0].state, GpuState::Ready);
    })
    .await;
    assert!(crashes.status().containers["c"].restarts > 1);
    let pids: Vec<u32> = neighbour.status().pids().into_values().collect();
    assert_eq!(processes_of(&node, &pids), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_client_process_holds_up_neither_the_supervisor_nor_a_config() {
    let node = running(one_card(), 2).await;
    let stopped = hold(&node, client("stopped", 1, "1Gi")).await;
    let pid = i32::try_from(stopped.status().pids()["c"]).unwrap();
    node.stop_process(pid).await.unwrap();
    crate::scene::label(&node, 4).await;
    node.kubelet().wait_allocatable(GPU, 3, crate::scene::PATIENCE).await.unwrap();
    hold(&node, client("later", 1, "1Gi")).await;
    check(&node);
    super::signal(pid, rustix::process::Signal::CONT);
}
