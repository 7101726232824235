//! The pod's own rules: defaults, binding, eviction, graceful deletion.

use k8s_openapi::api::core::v1::{Binding, Pod};
use kube::ResourceExt;
use kube::api::{DeleteParams, EvictParams, PostParams};
use serde_json::{Value, json};

use super::{FakeKube, pod, pod_on, pods, refusal, start, typed};

async fn bind(kube: &FakeKube, binding: Value) -> Result<(), kube::Error> {
    let name = binding["metadata"]["name"].as_str().unwrap().to_owned();
    let body: Binding = typed(binding);
    let status: Value =
        pods(kube).create_subresource("binding", &name, &PostParams::default(), &body).await?;
    assert_eq!(status["status"], "Success");
    Ok(())
}

fn binding(pod: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod, "annotations": {"mpshare.io/allocation": "x"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    })
}

#[tokio::test]
async fn a_new_pod_is_pending_and_its_limits_are_requests() {
    let kube = start().await;
    let mut body = pod("a");
    body["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": "1"}});
    body["status"] = json!({"phase": "Running"});
    let made = pods(&kube).create(&PostParams::default(), &typed(body)).await.unwrap();
    assert_eq!(made.status.unwrap().phase.as_deref(), Some("Pending"));
    let container = serde_json::to_value(&made.spec.unwrap().containers[0]).unwrap();
    assert_eq!(container["resources"]["requests"]["nvidia.com/gpu"], "1");
}

#[tokio::test]
async fn an_extended_resource_asked_for_without_a_limit_is_refused() {
    let kube = start().await;
    let mut body = pod("a");
    body["spec"]["containers"][0]["resources"] = json!({"requests": {"nvidia.com/gpu": "1"}});
    let refused = pods(&kube).create(&PostParams::default(), &typed(body)).await;
    assert_eq!(refusal(refused), (422, "Invalid".to_owned()));
}

#[tokio::test]
async fn a_binding_sets_node_and_annotations_in_one_write() {
    let kube = start().await;
    let mut body = pod("a");
    body["metadata"]["annotations"] = json!({"mpshare.io/allocation": "a user's", "kept": "y"});
    let made = kube.create(body).await.unwrap();
    let before = kube.revision();
    bind(&kube, binding("a", "n1")).await.unwrap();
    assert_eq!(kube.revision(), before + 1);
    let bound: Pod = pods(&kube).get("a").await.unwrap();
    assert_eq!(bound.uid(), made["metadata"]["uid"].as_str().map(str::to_owned));
    assert_eq!(bound.annotations()["mpshare.io/allocation"], "x");
    assert_eq!(bound.annotations()["kept"], "y");
    assert_eq!(bound.spec.unwrap().node_name.as_deref(), Some("n1"));
    let conditions = bound.status.unwrap().conditions.unwrap();
    assert!(conditions.iter().any(|c| c.type_ == "PodScheduled" && c.status == "True"));
}

#[tokio::test]
async fn a_pod_is_bound_once() {
    let kube = start().await;
    kube.create(pod("a")).await.unwrap();
    bind(&kube, binding("a", "n1")).await.unwrap();
    for node in ["n1", "n2"] {
        let again = bind(&kube, binding("a", node)).await;
        assert_eq!(refusal(again), (409, "Conflict".to_owned()));
    }
}

#[tokio::test]
async fn a_bindings_uid_and_version_are_preconditions() {
    let kube = start().await;
    kube.create(pod("a")).await.unwrap();
    for (field, value) in [("uid", "other"), ("resourceVersion", "1")] {
        let mut body = binding("a", "n1");
        body["metadata"][field] = value.into();
        assert_eq!(refusal(bind(&kube, body).await), (409, "Conflict".to_owned()), "{field}");
    }
    let unbound = kube.get("pods", "default", "a").unwrap();
    assert_eq!(unbound["spec"].get("nodeName"), None);
}

#[tokio::test]
async fn a_gated_or_terminating_pod_is_not_bound() {
    let kube = start().await;
    let mut gated = pod("gated");
    gated["spec"]["schedulingGates"] = json!([{"name": "wait"}]);
    kube.create(gated).await.unwrap();
    let mut ending = pod("ending");
    ending["metadata"]["finalizers"] = json!(["example.com/hold"]);
    kube.create(ending).await.unwrap();
    kube.delete("pods", "default", "ending").await.unwrap();
    for name in ["gated", "ending"] {
        let refused = bind(&kube, binding(name, "n1")).await;
        assert_eq!(refusal(refused), (409, "Conflict".to_owned()), "{name}");
    }
}

#[tokio::test]
async fn a_pod_on_a_node_terminates_until_the_kubelet_confirms() {
    let kube = start().await;
    kube.create(pod_on("a", "n1")).await.unwrap();
    let api = pods(&kube);
    api.delete("a", &DeleteParams::default()).await.unwrap();
    let ending = api.get("a").await.unwrap();
    assert!(ending.metadata.deletion_timestamp.is_some());
    assert_eq!(ending.metadata.deletion_grace_period_seconds, Some(30));
    let uid = ending.uid().unwrap();
    let wrong = kube.confirm_pod_deletion("default", "a", "other").await.unwrap_err();
    assert_eq!(wrong.code, 409);
    kube.confirm_pod_deletion("default", "a", &uid).await.unwrap();
    assert_eq!(kube.get("pods", "default", "a"), None);
}

#[tokio::test]
async fn a_second_delete_only_shortens_the_grace_period() {
    let kube = start().await;
    kube.create(pod_on("a", "n1")).await.unwrap();
    let api = pods(&kube);
    for (asked, expected) in [(20, 20), (25, 20), (5, 5)] {
        let params = DeleteParams { grace_period_seconds: Some(asked), ..Default::default() };
        api.delete("a", &params).await.unwrap();
        let grace = api.get("a").await.unwrap().metadata.deletion_grace_period_seconds;
        assert_eq!(grace, Some(expected), "after asking for {asked}");
    }
}

#[tokio::test]
async fn forced_unbound_and_finished_pods_go_at_once() {
    let kube = start().await;
    let api = pods(&kube);
    kube.create(pod("unbound")).await.unwrap();
    api.delete("unbound", &DeleteParams::default()).await.unwrap();
    let mut finished = pod_on("finished", "n1");
    finished["status"] = json!({"phase": "Succeeded"});
    kube.create(finished).await.unwrap();
    api.delete("finished", &DeleteParams::default()).await.unwrap();
    kube.create(pod_on("forced", "n1")).await.unwrap();
    let force = DeleteParams { grace_period_seconds: Some(0), ..Default::default() };
    api.delete("forced", &force).await.unwrap();
    assert_eq!(kube.list("pods"), Vec::<Value>::new());
}

#[tokio::test]
async fn an_eviction_starts_a_graceful_deletion() {
    let kube = start().await;
    kube.create(pod_on("a", "n1")).await.unwrap();
    let api = pods(&kube);
    api.evict("a", &EvictParams::default()).await.unwrap();
    let evicted = api.get("a").await.unwrap();
    assert!(evicted.metadata.deletion_timestamp.is_some());
}
