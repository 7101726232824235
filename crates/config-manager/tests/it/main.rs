//! The role against an API server in memory, with its files in a scratch directory.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a helper of a test fails by panicking, as the tests do"
)]

mod cards;
mod drain;
mod harness;
mod others;
mod pods;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use harness::{LABEL, NODE, Rig, mount, node, replicas, until};
use mpshare_api::status::ReasonText;
use mpshare_api::{GpuState, GpuStatus, NodeStatus, PluginStatus, write_document};
use mpshare_config_manager::{ConfigSource, Fallback};
use mpshare_testkit::fakekube::{Effect, Matching, Times, WatchEnd};
use serde_json::json;

/// A report on one T4 at this generation.
fn report(generation: &str) -> NodeStatus {
    NodeStatus {
        version: NodeStatus::VERSION,
        config: "mps-2x".to_owned(),
        driver: "550.54.15".to_owned(),
        shared_memory: mpshare_api::SharedMemory::PerCard,
        former_pods: mpshare_api::status::FormerPods::default(),
        gpus: vec![GpuStatus {
            uuid: "GPU-cb1213a3-d6a4-be7f-0d2c-8b2f6c3c7a11".to_owned(),
            index: 0,
            minor: 0,
            model: "Tesla T4".to_owned(),
            memory_mib: 15360,
            compute_capability: (7, 5),
            mig: None,
            numa_node: None,
            state: GpuState::Ready,
            reason: None,
            generation: generation.to_owned(),
            daemon: None,
            processes: Vec::new(),
            outside_mib: 0,
            findings: Vec::new(),
        }],
        reasons: Vec::new(),
    }
}

/// Waits so that a write would show: times of conditions have whole seconds, and that nothing is
/// written can only be seen by giving it time.
async fn until_elapsed(time: Duration) {
    let start = Instant::now();
    until("time to pass", || (start.elapsed() > time).then_some(())).await;
}

const HALVES: &str = "mps/nvidia.com/gpu/2x7680M@50.0";

#[tokio::test]
async fn a_label_change_is_written_at_once() {
    let rig = Rig::on("mps-2x").await;
    let config = rig.until_in_force("mps-2x").await;
    assert_eq!(config.why, "node label nvidia.com/device-plugin.config=mps-2x");
    assert_eq!(config.text, replicas(2));
    let mut times = Vec::new();
    for name in ["mps-4x", "mps-1x", "mps-2x", "mps-4x", "mps-1x", "mps-2x"] {
        let start = Instant::now();
        rig.kube.patch_node_label(NODE, LABEL, name).await.unwrap();
        rig.until_in_force(name).await;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    println!("label change to config.yaml: {times:?}");
    // A poll of any kind would show: the median is a few milliseconds, also on a busy machine.
    assert!(times[times.len() / 2] < Duration::from_millis(200), "{times:?}");
}

#[tokio::test]
async fn an_edit_of_the_config_map_is_followed() {
    let rig = Rig::on("mps-2x").await;
    rig.until_in_force("mps-2x").await;
    let edit = json!({"data": {"mps-2x": replicas(3)}});
    rig.kube
        .patch("configmaps", "kube-system", "nvidia-device-plugin-configs", edit)
        .await
        .unwrap();
    until("the edited text", || rig.in_force().filter(|config| config.text == replicas(3))).await;
}

#[tokio::test]
async fn an_invalid_config_leaves_the_last_good_one_and_says_where_it_is_wrong() {
    let rig = Rig::on("mps-2x").await;
    rig.until_in_force("mps-2x").await;
    rig.kube.patch_node_label(NODE, LABEL, "broken").await.unwrap();
    let condition = rig.until_condition("False", "ConfigInvalid").await;
    let message = condition["message"].as_str().unwrap();
    assert!(
        message.starts_with(
            "config `broken` can't be used, the last good one stays in force: \
             line 2, column 1: unknown key `mps` at the top level"
        ),
        "{message}"
    );
    assert_eq!(rig.in_force().unwrap().name, "mps-2x");
    let event = until("an Event", || rig.events("ConfigInvalid").pop()).await;
    assert_eq!(event["type"], "Warning");
    assert!(message.starts_with(event["message"].as_str().unwrap()));
    assert_eq!(event["source"]["component"], "mpshare-config-manager");
    let uid = rig.kube.get("nodes", "", NODE).unwrap()["metadata"]["uid"].clone();
    assert_eq!(event["involvedObject"]["uid"], uid);
}

#[tokio::test]
async fn labels_that_disagree_change_nothing() {
    let rig = Rig::on("mps-2x").await;
    rig.until_in_force("mps-2x").await;
    let labels = json!({"metadata": {"labels": {
        LABEL: "mps-4x", "ack.node.gpu.schedule": "mps",
    }}});
    rig.kube.patch("nodes", "", NODE, labels).await.unwrap();
    rig.until_condition("False", "LabelsDisagree").await;
    assert_eq!(rig.in_force().unwrap().name, "mps-2x");
    rig.kube.remove_node_label(NODE, "ack.node.gpu.schedule").await.unwrap();
    rig.until_in_force("mps-4x").await;
}

#[tokio::test]
async fn the_condition_follows_the_report_and_leaves_the_kubelets_alone() {
    let rig = Rig::on("mps-2x").await;
    rig.until_condition("Unknown", "StatusMissing").await;
    rig.report(&report("exclusive/nvidia.com/gpu"));
    let switching = rig.until_condition("False", "Reconfiguring").await;
    rig.report(&report(HALVES));
    let ready = rig.until_condition("True", "Ready").await;
    let message = ready["message"].as_str().unwrap();
    assert!(message.contains("2 units of `nvidia.com/gpu` each"), "{message}");
    assert!(ready["lastTransitionTime"].as_str() >= switching["lastTransitionTime"].as_str());
    let kubelets = rig.condition("Ready").unwrap();
    assert_eq!(kubelets["lastHeartbeatTime"], "2026-01-01T00:00:00Z");

    // The status stays False here, so the time of transition stays too.
    let mut broken = report(HALVES);
    broken.gpus[0].state = GpuState::Fault;
    rig.report(&broken);
    let fault = rig.until_condition("False", "GpuNotReady").await;
    broken.gpus[0].reason = Some(ReasonText {
        code: "ServerFault".to_owned(),
        message: "MPS server 7 is in FAULT".to_owned(),
        pods: Vec::new(),
    });
    until_elapsed(Duration::from_millis(1100)).await;
    rig.report(&broken);
    let with_reason = rig.until_condition("False", "ServerFault").await;
    assert_eq!(with_reason["lastTransitionTime"], fault["lastTransitionTime"]);
    assert_ne!(with_reason["lastHeartbeatTime"], fault["lastHeartbeatTime"]);
    until("an Event", || rig.events("ServerFault").pop()).await;
}

#[tokio::test]
async fn an_unchanged_condition_isnt_patched_again() {
    let mut rig = Rig::on("mps-2x").await;
    rig.report(&report(HALVES));
    rig.until_condition("True", "Ready").await;
    let version = |rig: &Rig| {
        let node = rig.kube.get("nodes", "", NODE).unwrap();
        node["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
    };
    let before = version(&rig);
    rig.report(&report(HALVES));
    rig.stop().await;
    until_elapsed(Duration::from_millis(1100)).await;
    rig.start(|_| {});
    // An edit that concerns nobody, so that there is a reason to look.
    rig.kube.patch_node_label(NODE, "other", "1").await.unwrap();
    let labelled = version(&rig);
    assert_ne!(before, labelled);
    until_elapsed(Duration::from_millis(800)).await;
    assert_eq!(version(&rig), labelled);
}

#[tokio::test]
async fn a_restart_writes_and_announces_nothing_again() {
    let mut rig = Rig::on("mps-2x").await;
    rig.until_in_force("mps-2x").await;
    until("the Event", || rig.events("ConfigApplied").pop()).await;
    let inode = fs::metadata(rig.root.config()).unwrap().ino();
    rig.stop().await;
    // The condition shows when the new start has decided.
    rig.report(&report(HALVES));
    rig.start(|_| {});
    rig.until_condition("True", "Ready").await;
    assert_eq!(fs::metadata(rig.root.config()).unwrap().ino(), inode);
    // Events come in order: the refusal's would be behind a repeated one.
    rig.kube.patch_node_label(NODE, LABEL, "broken").await.unwrap();
    until("the refusal's Event", || rig.events("ConfigInvalid").pop()).await;
    assert_eq!(rig.events("ConfigApplied").len(), 1);
}

#[tokio::test]
async fn a_damaged_or_removed_config_is_written_again() {
    let rig = Rig::on("mps-2x").await;
    rig.until_in_force("mps-2x").await;
    fs::write(rig.root.config(), "{ trunc").unwrap();
    let whole = || {
        let read = mpshare_api::read_document::<mpshare_api::ChosenConfig>(&rig.root.config());
        read.ok().flatten().filter(|config| config.name == "mps-2x")
    };
    until("the damaged file to be replaced", whole).await;
    fs::remove_file(rig.root.config()).unwrap();
    rig.until_in_force("mps-2x").await;
    fs::remove_dir_all(rig.root.path()).unwrap();
    rig.until_in_force("mps-2x").await;
}

#[tokio::test]
async fn what_changed_while_the_api_was_away_is_made_up_for() {
    let rig = Rig::on("mps-2x").await;
    rig.until_in_force("mps-2x").await;
    for verb in ["list", "watch", "get", "patch", "create"] {
        let matching = Matching::any().verb(verb);
        rig.kube.faults().inject(Times::Always, matching, Effect::Fail(503));
    }
    rig.kube.end_watches(WatchEnd::Broken);
    rig.kube.patch_node_label(NODE, LABEL, "mps-4x").await.unwrap();
    rig.kube.compact_history();
    // The report is followed without the API.
    rig.report(&report(HALVES));
    rig.kube.faults().clear();
    rig.until_in_force("mps-4x").await;
    rig.until_condition("False", "Reconfiguring").await;
}

#[tokio::test]
async fn a_node_that_was_made_anew_gets_the_condition_again() {
    let rig = Rig::on("mps-2x").await;
    rig.report(&report(HALVES));
    rig.until_condition("True", "Ready").await;
    rig.kube.delete("nodes", "", NODE).await.unwrap();
    rig.kube.create(node(&json!({LABEL: "mps-2x"}))).await.unwrap();
    rig.until_condition("True", "Ready").await;
}

#[tokio::test]
async fn without_labels_the_default_and_then_fallbacks_decide() {
    let mut rig = Rig::new(&json!({})).await;
    rig.start(|_| {});
    rig.until_condition("False", "ConfigNotChosen").await;
    assert_eq!(rig.in_force(), None);
    rig.stop().await;
    rig.start(|options| options.fallbacks = vec![Fallback::Single, Fallback::Empty]);
    let config = rig.until_in_force("empty").await;
    assert_eq!(config.text, "");
    rig.stop().await;
    rig.start(|options| options.default_config = Some("mps-1x".to_owned()));
    rig.until_in_force("mps-1x").await;
}

#[tokio::test]
async fn a_config_map_that_comes_late_is_picked_up() {
    let mut rig = Rig::new(&json!({LABEL: "mps-2x"})).await;
    rig.start(|options| {
        options.source =
            ConfigSource::ConfigMap { namespace: "gpu".to_owned(), name: "late".to_owned() };
    });
    let condition = rig.until_condition("False", "ConfigSourceMissing").await;
    let message = condition["message"].as_str().unwrap();
    assert!(message.starts_with("there is no ConfigMap `gpu/late`"), "{message}");
    let late = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "late", "namespace": "gpu"}, "data": {"mps-2x": replicas(2)},
    });
    rig.kube.create(late).await.unwrap();
    rig.until_in_force("mps-2x").await;
}

#[tokio::test]
async fn a_mounted_directory_is_followed_through_its_swaps() {
    let mut rig = Rig::new(&json!({LABEL: "a"})).await;
    let directory = rig.scratch.path().join("configs");
    mount(&directory, "2026_01", &[("a", &replicas(2))]);
    let source = ConfigSource::Directory(directory.clone());
    rig.start(|options| options.source = source);
    assert_eq!(rig.until_in_force("a").await.text, replicas(2));
    mount(&directory, "2026_02", &[("a", &replicas(4)), ("b", &replicas(8))]);
    until("the new text", || rig.in_force().filter(|config| config.text == replicas(4))).await;
    rig.kube.patch_node_label(NODE, LABEL, "b").await.unwrap();
    assert_eq!(rig.until_in_force("b").await.text, replicas(8));
}

#[tokio::test]
async fn a_node_of_qgpu_keeps_its_config_until_qgpu_is_gone() {
    let rig = Rig::on("mps-1x").await;
    rig.until_in_force("mps-1x").await;
    let key = "tke.cloud.tencent.com/qgpu-core";
    rig.kube.patch_status("nodes", "", NODE, json!({"capacity": {key: "200"}})).await.unwrap();
    rig.kube.patch_node_label(NODE, LABEL, "mps-2x").await.unwrap();
    rig.until_condition("False", "QgpuPresent").await;
    assert_eq!(rig.in_force().unwrap().name, "mps-1x");
    assert_eq!(rig.events("QgpuPresent").len(), 1);
    rig.kube.patch_status("nodes", "", NODE, json!({"capacity": {key: "0"}})).await.unwrap();
    rig.until_in_force("mps-2x").await;
}

#[tokio::test]
async fn what_keeps_the_device_plugin_from_serving_is_told_in_condition_and_event() {
    let rig = Rig::on("mps-2x").await;
    rig.until_in_force("mps-2x").await;
    let reason = ReasonText {
        code: "AnotherPlugin".to_owned(),
        message: "another one is here".to_owned(),
        pods: Vec::new(),
    };
    let status = PluginStatus { version: PluginStatus::VERSION, reasons: vec![reason] };
    write_document(&rig.root.plugin_status(), &status).unwrap();
    let condition = rig.until_condition("False", "AnotherPlugin").await;
    assert!(condition["message"].as_str().unwrap().starts_with("another one is here"));
    until("the Event", || (!rig.events("AnotherPlugin").is_empty()).then_some(())).await;
    fs::remove_file(rig.root.plugin_status()).unwrap();
    rig.until_condition("Unknown", "StatusMissing").await;
}
