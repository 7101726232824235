//! What the tests of the whole node start from.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use mpshare_api::status::DaemonStatus;
use mpshare_api::{ChosenConfig, GpuState, GpuStatus, write_document};
use mpshare_sim_state::ProcessKind;
use mpshare_testkit::fakekubelet::{Phase, PodHandle, PodSpec, pod};
use mpshare_testkit::simnode::{NODE, Role, Setup, SimNode};
use serde_json::json;

pub(crate) const GPU: &str = "nvidia.com/gpu";

/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A config that cuts every card.
pub(crate) fn config(replicas: u32) -> String {
    format!(
        "version: v1\nsharing:\n  mps:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: {replicas}\n"
    )
}

/// A node with the document's configs and one more, and no process of the product.
pub(crate) async fn bare(setup: Setup) -> SimNode {
    let node = SimNode::start(setup).await.unwrap();
    let configs: serde_json::Map<_, _> =
        (1..=4).map(|n| (format!("mps-{n}x"), json!(config(n)))).collect();
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": configs,
        "metadata": {"name": "nvidia-device-plugin-configs", "namespace": "kube-system"},
    });
    node.kube().create(map).await.unwrap();
    node
}

/// A node that offers its cards cut into `replicas`.
pub(crate) async fn running(setup: Setup, replicas: usize) -> SimNode {
    let cards = setup.cards.len();
    let mut node = bare(setup).await;
    label(&node, replicas).await;
    node.start_product().unwrap();
    node.kubelet().wait_allocatable(GPU, cards * replicas, PATIENCE).await.unwrap();
    node
}

/// Picks a config.
pub(crate) async fn label(node: &SimNode, replicas: usize) {
    let value = format!("mps-{replicas}x");
    let key = "nvidia.com/device-plugin.config";
    node.kube().patch_node_label(NODE, key, &value).await.unwrap();
}

/// A node with a supervisor alone, on a config that this test wrote.
pub(crate) async fn supervised(setup: Setup, replicas: u32) -> SimNode {
    let mut node = bare(setup).await;
    write_config(&node, replicas);
    node.start_role(Role::Supervisor).unwrap();
    node
}

/// Writes `config.yaml` in config-manager's place.
pub(crate) fn write_config(node: &SimNode, replicas: u32) {
    let chosen = ChosenConfig {
        version: ChosenConfig::VERSION,
        name: format!("mps-{replicas}x"),
        why: "a test".to_owned(),
        text: config(replicas),
        drain: mpshare_api::DrainWish::default(),
    };
    std::fs::create_dir_all(node.mps_root().path()).unwrap();
    write_document(&node.mps_root().config(), &chosen).unwrap();
}

/// A pod with one container that holds `alloc` on `units` units.
pub(crate) fn client(name: &str, units: usize, alloc: &str) -> PodSpec {
    pod(name).container("c").gpus(GPU, units).command([
        "cuda-sample",
        "--alloc",
        alloc,
        "--hold",
        "forever",
    ])
}

/// Admits a pod and waits until its program holds its memory.
pub(crate) async fn hold(node: &SimNode, spec: PodSpec) -> PodHandle {
    let pod = node.kubelet().admit(spec);
    if let Err(error) = pod.wait_phase(Phase::Running, PATIENCE).await {
        panic!("{error}: {:?}\n{}", pod.status(), logs(node));
    }
    wait(&format!("`{}` holds its memory: {}", pod.spec().name, pod.log("c")), || {
        pod.log("c").contains("holding")
    })
    .await;
    pod
}

/// A pod with one container on `units` units of the node, as the API has it.
pub(crate) fn bound(name: &str, units: usize, command: &[&str]) -> serde_json::Value {
    let limits = if units == 0 { json!({}) } else { json!({GPU: units.to_string()}) };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": NODE, "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "cuda", "command": command,
                "resources": {"limits": limits}}],
        },
    })
}

/// Creates a pod in the API and waits until its program holds its memory.
pub(crate) async fn hold_bound(node: &SimNode, pod: serde_json::Value) -> PodHandle {
    let made = node.kube().create(pod).await.unwrap();
    let uid = made["metadata"]["uid"].as_str().unwrap();
    let holds = || node.kubelet().pod(uid).filter(|pod| pod.log("c").contains("holding"));
    wait_or("the pod holds its memory", || logs(node), || holds().is_some()).await;
    holds().unwrap()
}

/// PIDs of the CUDA processes whose cgroup is the pod's.
pub(crate) fn processes_of(node: &SimNode, pod: &PodHandle) -> BTreeSet<i32> {
    let state = node.store().read().unwrap();
    let users = state.processes.iter().filter(|it| it.kind != ProcessKind::MpsServer);
    let is_of = |pid: &i32| {
        let path = node.path().join("proc").join(pid.to_string()).join("cgroup");
        std::fs::read_to_string(path).is_ok_and(|text| text.contains(pod.uid()))
    };
    users.map(|it| it.id.pid).filter(is_of).collect()
}

/// What a card's daemon has logged.
pub(crate) fn control_log(daemon: &DaemonStatus) -> String {
    let log = Path::new(&daemon.pipe_directory).with_file_name("log").join("control.log");
    std::fs::read_to_string(log).unwrap()
}

/// Waits for a fact.
pub(crate) async fn wait(what: &str, fact: impl Fn() -> bool) {
    wait_or(what, String::new, fact).await;
}

/// Waits for a fact; what else there is to say when it doesn't come.
pub(crate) async fn wait_or(what: &str, more: impl Fn() -> String, fact: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !fact() {
        assert!(Instant::now() < until, "not within {PATIENCE:?}: {what}\n{}", more());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The report on a card, once it satisfies `check`.
pub(crate) async fn card(
    node: &SimNode,
    index: usize,
    what: &str,
    check: impl Fn(&GpuStatus) -> bool,
) -> GpuStatus {
    let found = || node.status().and_then(|status| status.gpus.get(index).cloned());
    let until = Instant::now() + PATIENCE;
    loop {
        let status = found();
        if let Some(status) = status.as_ref().filter(|status| check(status)) {
            return status.clone();
        }
        assert!(Instant::now() < until, "card {index} isn't {what}: {status:#?}\n{}", logs(node));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The report on a card that is ready.
pub(crate) async fn ready(node: &SimNode, index: usize) -> GpuStatus {
    card(node, index, "ready", |card| card.state == GpuState::Ready).await
}

/// The ends of all logs, for a failed test.
pub(crate) fn logs(node: &SimNode) -> String {
    let log = |role: Role| {
        let text = std::fs::read_to_string(node.log(role)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let end = lines.iter().skip(lines.len().saturating_sub(30));
        format!("--- {role}\n{}\n", end.copied().collect::<Vec<_>>().join("\n"))
    };
    Role::ALL.map(log).concat()
}

/// The Event with which config-manager tells of a pod.
pub(crate) async fn pod_event(node: &SimNode, pod: &PodHandle, code: &str) -> serde_json::Value {
    let events = || {
        let mut events = node.kube().events_of("Pod", &pod.spec().name);
        events.retain(|it| it["reason"] == code);
        events
    };
    wait_or(&format!("an Event {code} on the pod"), || logs(node), || !events().is_empty()).await;
    let event = events().remove(0);
    assert_eq!(event["involvedObject"]["uid"], pod.uid());
    assert_eq!(event["metadata"]["namespace"], event["involvedObject"]["namespace"]);
    event
}
