//! From a scheduler's plan to a container's card: many pods at once on eight cards in GiB.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mpshare_sim_state::ProcessKind;
use mpshare_testkit::simnode::{NODE, Role, Setup, SimNode};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::scene::{PATIENCE, bare, logs};

const MEM: &str = "aliyun.com/gpu-mem";

const CARDS: [(&str, &str); 8] = [
    ("t4", "GPU-00000000-41d7-6b0e-9c88-27e1d4a0b6f2"),
    ("t4", "GPU-11111111-41d7-6b0e-9c88-27e1d4a0b6f2"),
    ("t4", "GPU-22222222-41d7-6b0e-9c88-27e1d4a0b6f2"),
    ("t4", "GPU-33333333-41d7-6b0e-9c88-27e1d4a0b6f2"),
    ("t4", "GPU-44444444-41d7-6b0e-9c88-27e1d4a0b6f2"),
    ("t4", "GPU-55555555-41d7-6b0e-9c88-27e1d4a0b6f2"),
    ("t4", "GPU-66666666-41d7-6b0e-9c88-27e1d4a0b6f2"),
    ("t4", "GPU-77777777-41d7-6b0e-9c88-27e1d4a0b6f2"),
];

/// What pods ask for: most of them the same.
const SIZES: [u64; 10] = [1, 2, 3, 5, 7, 7, 7, 7, 10, 15];

async fn eight_cards() -> SimNode {
    let mut node = bare(Setup { cards: CARDS.to_vec(), ..Setup::memory() }).await;
    let text = "sharing: {mps: {resources: [{name: aliyun.com/gpu-mem, memoryUnit: 1Gi}]}}";
    let patch = json!({"data": {"gpu-mem": text}});
    let map = "nvidia-device-plugin-configs";
    node.kube().patch("configmaps", "kube-system", map, patch).await.unwrap();
    node.kube().patch_node_label(NODE, "ack.node.gpu.schedule", "mps").await.unwrap();
    node.start_product().unwrap();
    if let Err(error) = node.kubelet().wait_allocatable(MEM, 120, PATIENCE).await {
        panic!("{error}\n{:#?}\n{}", node.status(), logs(&node));
    }
    node
}

fn pod(name: &str, units: u64) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "restartPolicy": "Never",
            "containers": [{
                "name": "c", "image": "cuda",
                "command": ["cuda-sample", "--alloc", "256Mi", "--hold", "forever"],
                "resources": {"limits": {MEM: units.to_string()}},
            }],
        },
    })
}

/// No card has more shares than memory, by the simulator's accounting.
fn check(node: &SimNode) {
    let state = node.store().read().unwrap();
    for gpu in &state.gpus {
        let clients = state
            .processes
            .iter()
            .filter(|process| process.gpu == gpu.uuid && process.kind != ProcessKind::MpsServer);
        let shares: u64 = clients.map(|client| client.limit_mib.unwrap()).sum();
        assert!(shares <= gpu.total_mib, "{}: {shares} of {}", gpu.uuid, gpu.total_mib);
    }
}

/// The pods that are neither running nor known to have no room; a failed one never will be.
fn unsettled(node: &SimNode) -> Vec<String> {
    let pods = node.kube().list("pods");
    let is_unsettled = |pod: &&Value| {
        let status = &pod["status"];
        let has_no_room = status["phase"] == "Pending"
            && status["conditions"]
                .as_array()
                .is_some_and(|all| all.iter().any(|it| it["reason"] == "Unschedulable"));
        status["phase"] != "Running" && !has_no_room
    };
    pods.iter()
        .filter(is_unsettled)
        .map(|pod| format!("{}: {}", pod["metadata"]["name"], pod["status"]))
        .collect()
}

/// The pods whose annotations don't say what the kubelet says.
fn untrue(node: &SimNode) -> Vec<String> {
    let mut untrue = Vec::new();
    for pod in node.kube().list("pods").iter().filter(|pod| pod["status"]["phase"] == "Running") {
        let uid = pod["metadata"]["uid"].as_str().unwrap();
        let ids = node.kubelet().pod(uid).unwrap().devices("c", MEM);
        let mut truth = BTreeMap::new();
        for id in &ids {
            *truth.entry(id.split("::").next().unwrap().to_owned()).or_insert(0_u64) += 1;
        }
        let annotations = &pod["metadata"]["annotations"];
        let said = annotations["mpshare.io/allocation"].as_str().unwrap_or("{}");
        let said: BTreeMap<String, BTreeMap<String, u64>> = serde_json::from_str(said).unwrap();
        if said.get("c") != Some(&truth) || annotations["ALIYUN_COM_GPU_MEM_ASSIGNED"] != "true" {
            untrue.push(format!("{}: {annotations}, but {truth:?}", pod["metadata"]["name"]));
        }
    }
    untrue
}

async fn until(what: &str, node: &SimNode, look: impl Fn(&SimNode) -> Vec<String>) {
    let deadline = Instant::now() + PATIENCE * 2;
    loop {
        check(node);
        let left = look(node);
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: {left:#?}\n{}", logs(node));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_pods_at_once_end_where_their_annotations_say() {
    let mut node = eight_cards().await;
    let mut random = fastrand::Rng::with_seed(20_261_130);
    let mut created = 0;
    for round in 0..4 {
        for _ in 0..if round == 0 { 60 } else { 10 } {
            let units = random.choice(SIZES).unwrap();
            node.kube().create(pod(&format!("race-{created}-of-{units}"), units)).await.unwrap();
            created += 1;
        }
        if round == 1 {
            node.end_role(Role::SchedulerExtender, Signal::KILL).unwrap();
            node.start_role(Role::SchedulerExtender).unwrap();
        }
        until("each pod runs or has no room", &node, unsettled).await;
        let mut pods = node.kube().list("pods");
        random.shuffle(&mut pods);
        for pod in pods.iter().take(10) {
            let name = pod["metadata"]["name"].as_str().unwrap();
            node.kube().delete("pods", "default", name).await.unwrap();
        }
    }
    until("each pod runs or has no room", &node, unsettled).await;
    until("annotations are true", &node, untrue).await;
    let running =
        node.kube().list("pods").iter().filter(|it| it["status"]["phase"] == "Running").count();
    assert!(running >= 10, "only {running} pods run");
    println!("{created} pods were created, {running} run in the end");
}

/// The card that a pod's annotation names.
fn claimed(pod: &Value) -> Option<String> {
    let text = pod["metadata"]["annotations"]["mpshare.io/allocation"].as_str()?;
    let said: BTreeMap<String, BTreeMap<String, u64>> = serde_json::from_str(text).ok()?;
    said.get("c")?.keys().next().cloned()
}

/// In which order the kubelet admits equal pods is chance, and the plugin isn't told for which it
/// asks: so this goes on until two have exchanged their places, which of eight some nearly always
/// do.
#[tokio::test(flavor = "multi_thread")]
async fn equal_pods_that_got_each_others_cards_end_with_true_annotations() {
    let node = eight_cards().await;
    node.kube().patch_node_label(NODE, "ack.node.gpu.placement", "spread").await.unwrap();
    for round in 0..20 {
        let mut history = node.kube().changes();
        let names: Vec<String> = (0..CARDS.len()).map(|n| format!("equal-{round}-{n}")).collect();
        for name in &names {
            node.kube().create(pod(name, 7)).await.unwrap();
        }
        until("all run", &node, unsettled).await;
        until("annotations are true", &node, untrue).await;
        let mut planned = BTreeMap::new();
        while planned.len() < names.len() {
            let change = history.next().await.unwrap();
            let name = change.object["metadata"]["name"].as_str().unwrap().to_owned();
            if let Some(card) = claimed(&change.object) {
                planned.entry(name).or_insert(card);
            }
        }
        let end = |name: &String| claimed(&node.kube().get("pods", "default", name).unwrap());
        let exchanged = names.iter().filter(|name| end(name) != planned.get(*name).cloned());
        let exchanged = exchanged.count();
        if exchanged >= 2 {
            println!("round {round}: {exchanged} pods have exchanged their places");
            return;
        }
        for name in &names {
            node.kube().delete("pods", "default", name).await.unwrap();
        }
        until("all are gone", &node, |node| {
            node.kube().list("pods").iter().map(|pod| pod["metadata"].to_string()).collect()
        })
        .await;
    }
    panic!("no two pods exchanged their places");
}
