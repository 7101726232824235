//! Every driver profile, from config to client.

use mpshare_sim_state::ProcessKind;
use mpshare_testkit::simnode::Setup;

use crate::scene::{client, hold, running};

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
