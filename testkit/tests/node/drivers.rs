//! Every driver profile, from config to client.

use mpshare_api::{GpuState, GpuStatus};
use mpshare_sim_state::ProcessKind;
use mpshare_testkit::simnode::Setup;

use crate::scene::{GPU, PATIENCE, card, client, hold, ready, running};

async fn check(driver: &'static str) {
    let node = running(Setup { driver, ..Setup::two_cards() }, 4).await;
    let pod = hold(&node, client("a", 2, "1Gi")).await;
    let pid = pod.status().pids().into_values().next();
    let state = node.store().read().unwrap();
    let process = state.processes.iter().find(|p| Some(p.id.pid.unsigned_abs()) == pid).unwrap();
    assert!(matches!(process.kind, ProcessKind::MpsClient { .. }), "{driver}: {process:?}");
    assert_eq!((process.limit_mib, process.percent_tenths), (Some(7680), 500), "{driver}");
    assert_eq!(node.kubelet().violations(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_quarters_are_half_a_card_on_driver_535() {
    check("535.161.07").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_quarters_are_half_a_card_on_driver_550() {
    check("550.163.01").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_quarters_are_half_a_card_on_driver_580() {
    check("580.65.06").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_quarters_are_half_a_card_on_driver_590() {
    check("590.44.01").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_quarters_are_half_a_card_on_driver_615() {
    check("615.71.09").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_is_upgraded_under_a_running_node_gets_daemons_of_its_own_when_clients_have_ended()
 {
    let node = running(Setup::two_cards(), 2).await;
    let pod = hold(&node, client("a", 1, "1Gi")).await;
    let busy = usize::from(!pod.devices("c", GPU).iter().any(|id| id.contains("cb1213a3")));
    let before =
        [ready(&node, 0).await.daemon.unwrap().pid, ready(&node, 1).await.daemon.unwrap().pid];
    node.store().update(|state| "580.65.06".clone_into(&mut state.driver.version)).unwrap();
    let is_new = |index: usize| {
        move |gpu: &GpuStatus| {
            let daemon = gpu.daemon.as_ref();
            gpu.state == GpuState::Ready && daemon.is_some_and(|it| it.pid != before[index])
        }
    };
    card(&node, 1 - busy, "ready with a new daemon", is_new(1 - busy)).await;
    let is_told =
        |gpu: &GpuStatus| gpu.reason.as_ref().is_some_and(|it| it.code == "DriverChanged");
    let gpu = card(&node, busy, "told of the driver", is_told).await;
    assert_eq!(gpu.state, GpuState::Draining);
    assert!(gpu.reason.unwrap().message.contains("555.58.02"));
    let pid = pod.status().pids()["c"];
    let lives = |state: &mpshare_sim_state::SimState| {
        state
            .processes
            .iter()
            .any(|it| it.id.pid.unsigned_abs() == pid && it.sticky_error.is_none())
    };
    assert!(lives(&node.store().read().unwrap()));
    pod.force_delete();
    card(&node, busy, "ready with a new daemon", is_new(busy)).await;
    node.kubelet().wait_allocatable(GPU, 4, PATIENCE).await.unwrap();
    hold(&node, client("later", 1, "1Gi")).await;
}
