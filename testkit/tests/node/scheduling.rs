//! Pods through the API server and the scheduler, which asks the product's extender.

use mpshare_testkit::simnode::{CountedBy, NODE, Role, Setup, SimNode};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::scene::{PATIENCE, bare, logs, wait, wait_or};

const MEM: &str = "aliyun.com/gpu-mem";

async fn extended(setup: Setup) -> SimNode {
    let mut node = bare(setup).await;
    let text = "sharing: {mps: {resources: [{name: aliyun.com/gpu-mem, memoryUnit: 1Gi}]}}";
    let map = "nvidia-device-plugin-configs";
    let patch = json!({"data": {"gpu-mem": text}});
    node.kube().patch("configmaps", "kube-system", map, patch).await.unwrap();
    node.kube().patch_node_label(NODE, "ack.node.gpu.schedule", "mps").await.unwrap();
    node.start_product().unwrap();
    node.kubelet().wait_allocatable(MEM, 15, PATIENCE).await.unwrap();
    node
}

async fn create(node: &SimNode, name: &str, resource: &str, units: &str) {
    let limits = json!({resource: units});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [{
            "name": "c", "image": "i", "command": ["sleep", "infinity"],
            "resources": {"limits": limits, "requests": limits},
        }]},
    });
    node.kube().create(pod).await.unwrap();
}

fn pod(node: &SimNode, name: &str) -> Value {
    node.kube().get("pods", "default", name).unwrap_or_default()
}

async fn runs(node: &SimNode, name: &str) {
    wait_or(
        &format!("`{name}` runs"),
        || format!("{:#}\n{}", pod(node, name), logs(node)),
        || pod(node, name)["status"]["phase"] == "Running",
    )
    .await;
}

/// Waits for an Event of a pod with this text, and looks whether the pod is Pending.
async fn is_told(node: &SimNode, name: &str, reason: &str, text: &str) {
    let events = || node.kube().events_of("Pod", name);
    let says = |event: &Value| event["message"].as_str().is_some_and(|it| it.contains(text));
    wait_or(
        &format!("`{name}` is told `{text}`"),
        || format!("{:#?}", events()),
        || events().iter().any(says),
    )
    .await;
    let pod = pod(node, name);
    assert_eq!(pod["status"]["phase"], "Pending");
    let condition = &pod["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["reason"]),
        (&json!("PodScheduled"), &json!(reason))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_extender_a_pod_waits_and_with_it_the_pod_is_bound_to_its_card() {
    let mut node = extended(Setup::memory()).await;
    create(&node, "first", MEM, "7").await;
    runs(&node, "first").await;
    let uuid = Setup::memory().cards[0].1;
    let allocation = json!({"c": {uuid: 7}}).to_string();
    let annotations = pod(&node, "first")["metadata"]["annotations"].clone();
    assert_eq!(annotations["mpshare.io/allocation"], allocation);

    node.end_role(Role::SchedulerExtender, Signal::KILL).unwrap();
    create(&node, "second", MEM, "7").await;
    is_told(&node, "second", "SchedulerError", "/gpushare-scheduler/filter").await;
    // Pods that ask nothing of it are none of its business.
    create(&node, "other", "example.com/x", "0").await;
    runs(&node, "other").await;
    node.start_role(Role::SchedulerExtender).unwrap();
    runs(&node, "second").await;

    create(&node, "third", MEM, "2").await;
    is_told(&node, "third", "Unschedulable", "14 of 15 GiB allocated on GPU0").await;
    node.kube().delete("pods", "default", "first").await.unwrap();
    runs(&node, "third").await;
    assert_eq!(node.kubelet().violations(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_that_the_scheduler_counts_too_is_refused_in_the_schedulers_words() {
    let mut setup = Setup::memory();
    setup.managed[0].counted_by = CountedBy::Both;
    let node = extended(setup).await;
    create(&node, "first", MEM, "14").await;
    runs(&node, "first").await;
    create(&node, "second", MEM, "2").await;
    is_told(&node, "second", "Unschedulable", &format!("1 Insufficient {MEM}.")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_come_at_once_are_bound_as_far_as_they_fit() {
    let node = extended(Setup::memory()).await;
    for index in 0..7 {
        create(&node, &format!("p{index}"), MEM, "3").await;
    }
    let running = || {
        let pods = node.kube().list("pods");
        pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count()
    };
    wait("five pods run", || running() == 5).await;
    let pending: Vec<Value> = node
        .kube()
        .list("pods")
        .into_iter()
        .filter(|pod| pod["status"]["phase"] == "Pending")
        .collect();
    assert_eq!(pending.len(), 2);
    for pod in pending {
        let name = pod["metadata"]["name"].as_str().unwrap();
        is_told(&node, name, "Unschedulable", "15 of 15 GiB allocated on GPU0").await;
    }
}
