//! Cards, servers and daemons that break, seen from the kubelet and from neighbours.

use mpshare_api::GpuState;
use mpshare_sim_state::{Health, ProcessKind, Xid};
use mpshare_testkit::fakekubelet::pod;
use mpshare_testkit::simnode::{Role, Setup, SimNode};
use rustix::process::{Pid, Signal, kill_process};

use crate::scene::{GPU, PATIENCE, card, client, hold, ready, running, wait};

fn xid(node: &SimNode, card: usize, xid: u32) {
    let raise = |state: &mut mpshare_sim_state::SimState| {
        state.sequence += 1;
        let sequence = state.sequence;
        state.gpus[card].xids.push(Xid { sequence, xid });
    };
    node.store().update(raise).unwrap();
}

fn healthy_units(node: &SimNode, uuid: &str) -> usize {
    let ids = node.kubelet().device_ids(GPU);
    ids.iter().filter(|(id, health)| id.starts_with(uuid) && *health == "Healthy").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_critical_xid_takes_all_units_of_its_card_and_they_come_back() {
    let setup = Setup { supervisor: vec!["--recovery-seconds", "1"], ..Setup::two_cards() };
    let node = running(setup, 4).await;
    let first = Setup::two_cards().cards[0].1;
    xid(&node, 0, 79);
    wait("no unit of the card is healthy", || healthy_units(&node, first) == 0).await;
    assert_eq!(node.kubelet().allocatable(GPU), 4, "the other card's");
    node.kubelet().wait_allocatable(GPU, 8, PATIENCE).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_xid_of_a_failing_program_takes_nothing() {
    let node = running(Setup::two_cards(), 2).await;
    xid(&node, 0, 31);
    xid(&node, 1, 79);
    node.kubelet().wait_allocatable(GPU, 2, PATIENCE).await.unwrap();
    let first = Setup::two_cards().cards[0].1;
    assert_eq!(healthy_units(&node, first), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_card_keeps_its_place_also_for_a_new_supervisor() {
    let mut node = running(Setup::two_cards(), 2).await;
    let pod = hold(&node, client("a", 1, "1Gi")).await;
    let ids = node.kubelet().device_ids(GPU);
    node.store().update(|state| state.gpus[0].health = Health::Lost).unwrap();
    node.kubelet().wait_allocatable(GPU, 2, PATIENCE).await.unwrap();
    // The driver doesn't list it any more.
    node.end_role(Role::Supervisor, Signal::KILL).unwrap();
    std::fs::remove_file(node.mps_root().path().join("supervisor.lock")).unwrap();
    node.start_role(Role::Supervisor).unwrap();
    wait("the new supervisor holds the lock", || {
        node.mps_root().path().join("supervisor.lock").exists()
    })
    .await;
    ready(&node, 1).await;
    card(&node, 0, "absent", |card| card.state == GpuState::Absent).await;
    let listed: Vec<String> = node.kubelet().device_ids(GPU).into_keys().collect();
    assert_eq!(listed, ids.into_keys().collect::<Vec<_>>());
    assert_eq!(node.kubelet().allocated(GPU), pod.devices("c", GPU));
    assert_eq!(node.kubelet().violations(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_faulted_server_takes_its_card_out_until_the_affected_clients_are_gone() {
    let node = running(Setup::two_cards(), 4).await;
    // It doesn't end by itself when its context is lost.
    let command = ["cuda-sample", "--alloc", "1Gi", "--hold", "forever", "--linger"];
    let lingers = pod("lingers").container("c").gpus(GPU, 1).command(command);
    let neighbour = hold(&node, lingers).await;
    let gpu = neighbour.devices("c", GPU).into_iter().next().unwrap();
    let uuid = gpu.split("::").next().unwrap().to_owned();
    let state = node.store().read().unwrap();
    let server = state.processes.iter().find_map(|process| match process.kind {
        ProcessKind::MpsClient { server } => Some(server),
        ProcessKind::Plain | ProcessKind::MpsServer => None,
    });
    mpshare_sim_state::mps::raise_fault(node.store(), server.unwrap(), &uuid, 700).unwrap();
    wait("no unit of the card is healthy", || healthy_units(&node, &uuid) == 0).await;
    neighbour.force_delete();
    neighbour.wait_gone(PATIENCE).await.unwrap();
    wait("all units are back", || healthy_units(&node, &uuid) == 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_daemon_is_replaced_and_the_card_takes_new_clients() {
    let node = running(Setup::two_cards(), 2).await;
    let old = hold(&node, client("old", 1, "1Gi")).await;
    let index = usize::from(!old.devices("c", GPU).iter().any(|id| id.contains("cb1213a3")));
    let pid = ready(&node, index).await.daemon.unwrap().pid;
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let is_new = |card: &mpshare_api::GpuStatus| {
        card.state == GpuState::Ready && card.daemon.as_ref().is_some_and(|d| d.pid != pid)
    };
    card(&node, index, "ready with a new daemon", is_new).await;
    for n in 0..3 {
        hold(&node, client(&format!("new-{n}"), 1, "1Gi")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_that_an_outsider_holds_says_who() {
    let mut node = crate::scene::bare(Setup::two_cards()).await;
    let mut outsider = node.program("cuda-sample");
    outsider.args(["--alloc", "1Gi", "--hold", "forever"]);
    let mut outsider = outsider.stdout(std::process::Stdio::null()).spawn().unwrap();
    let pid = i32::try_from(outsider.id()).unwrap();
    wait("the outsider holds the card", || {
        node.store().read().unwrap().processes.iter().any(|process| process.id.pid == pid)
    })
    .await;
    crate::scene::write_config(&node, 2);
    node.start_role(Role::Supervisor).unwrap();
    let is_told = |card: &mpshare_api::GpuStatus| {
        card.reason.as_ref().is_some_and(|reason| reason.code == "CardInUse")
    };
    let status = card(&node, 0, "told to be in use", is_told).await;
    assert!(status.reason.unwrap().message.contains(&pid.to_string()));
    ready(&node, 1).await;
    outsider.kill().unwrap();
    outsider.wait().unwrap();
    ready(&node, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_ends_and_restarts_in_place_keeps_its_share() {
    let node = running(Setup::two_cards(), 2).await;
    let script = "cuda-sample --alloc 1Gi --hold 100ms; exit 1";
    let pod = node.kubelet().admit(pod("crashes").container("c").gpus(GPU, 1).shell(script));
    wait("it has restarted three times", || pod.status().containers["c"].restarts >= 3).await;
    assert_eq!(
        pod.log("c").matches("holding").count(),
        pod.log("c").lines().filter(|line| line.contains("holding")).count()
    );
    assert_eq!(node.kubelet().allocated(GPU).len(), 1);
    assert_eq!(node.kubelet().violations(), []);
}
