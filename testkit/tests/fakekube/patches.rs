//! The patch formats and what a write to each half of an object may change.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{config_map, config_maps, node, nodes, pod, pods, refusal, start};

fn json_patch(operations: Value) -> Patch<Value> {
    Patch::Json(serde_json::from_value(operations).unwrap())
}

#[tokio::test]
async fn a_merge_patch_sets_and_removes() {
    let kube = start().await;
    kube.create(config_map("a", "1")).await.unwrap();
    let patch = Patch::Merge(json!({"data": {"k": null, "new": "2"}}));
    let patched = config_maps(&kube).patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(patched.data.unwrap(), [("new".to_owned(), "2".to_owned())].into());
}

#[tokio::test]
async fn a_merge_patch_with_an_old_version_conflicts() {
    let kube = start().await;
    kube.create(config_map("a", "1")).await.unwrap();
    let patch = Patch::Merge(json!({"metadata": {"resourceVersion": "1"}, "data": {"k": "2"}}));
    let refused = config_maps(&kube).patch("a", &PatchParams::default(), &patch).await;
    assert_eq!(refusal(refused), (409, "Conflict".to_owned()));
}

#[tokio::test]
async fn a_json_patch_whose_test_fails_changes_nothing() {
    let kube = start().await;
    kube.create(config_map("a", "1")).await.unwrap();
    let api = config_maps(&kube);
    let replace = json!({"op": "replace", "path": "/data/k", "value": "2"});
    let wrong = json_patch(json!([{"op": "test", "path": "/data/k", "value": "9"}, replace]));
    let refused = api.patch("a", &PatchParams::default(), &wrong).await;
    assert_eq!(refusal(refused).0, 422);
    let right = json_patch(json!([{"op": "test", "path": "/data/k", "value": "1"}, replace]));
    let patched = api.patch("a", &PatchParams::default(), &right).await.unwrap();
    assert_eq!(patched.data.unwrap()["k"], "2");
}

#[tokio::test]
async fn a_strategic_status_patch_keeps_foreign_conditions() {
    let kube = start().await;
    kube.create(node("n1")).await.unwrap();
    let ours = json!({"status": {"conditions": [{"type": "MPSShareReady", "status": "True"}]}});
    let api = nodes(&kube);
    api.patch_status("n1", &PatchParams::default(), &Patch::Strategic(ours)).await.unwrap();
    let kubelets = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let patch = Patch::Strategic(kubelets);
    let node = api.patch_status("n1", &PatchParams::default(), &patch).await.unwrap();
    let conditions: Vec<_> = node.status.unwrap().conditions.unwrap();
    let states: Vec<_> = conditions.iter().map(|c| (c.type_.as_str(), c.status.as_str())).collect();
    assert_eq!(states, [("Ready", "False"), ("MPSShareReady", "True")]);
}

#[tokio::test]
async fn a_status_write_of_a_node_may_change_annotations_and_not_the_spec() {
    let kube = start().await;
    kube.create(node("n1")).await.unwrap();
    let patch = Patch::Merge(json!({
        "metadata": {"annotations": {"a": "b"}},
        "spec": {"unschedulable": true},
        "status": {"phase": "x"},
    }));
    let api = nodes(&kube);
    let node: Node = api.patch_status("n1", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(node.annotations()["a"], "b");
    assert_eq!(node.spec.and_then(|spec| spec.unschedulable), None);
    assert_eq!(node.status.unwrap().phase.as_deref(), Some("x"));
}

#[tokio::test]
async fn a_main_write_may_not_change_the_status() {
    let kube = start().await;
    kube.create(node("n1")).await.unwrap();
    let patch = Patch::Merge(json!({"status": {"phase": "x"}}));
    let node = nodes(&kube).patch("n1", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(node.status.unwrap().phase, None);
}

#[tokio::test]
async fn an_apply_patch_creates_and_then_merges() {
    let kube = start().await;
    let api = config_maps(&kube);
    let params = PatchParams::apply("tester");
    api.patch("a", &params, &Patch::Apply(config_map("a", "1"))).await.unwrap();
    let mut more = config_map("a", "1");
    more["data"] = json!({"l": "2"});
    let merged = api.patch("a", &params, &Patch::Apply(more)).await.unwrap();
    assert_eq!(merged.data.unwrap().len(), 2);
}

#[tokio::test]
async fn a_pods_spec_is_fixed_but_for_images() {
    let kube = start().await;
    kube.create(pod("a")).await.unwrap();
    let api = pods(&kube);
    let image = json!({"spec": {"containers": [{"name": "main", "image": "example/app:2"}]}});
    api.patch("a", &PatchParams::default(), &Patch::Strategic(image)).await.unwrap();
    let node = Patch::Strategic(json!({"spec": {"nodeName": "n1"}}));
    let refused = api.patch("a", &PatchParams::default(), &node).await;
    assert_eq!(refusal(refused), (422, "Invalid".to_owned()));
}

#[tokio::test]
async fn parallel_merge_patches_all_arrive() {
    let kube = start().await;
    kube.create(node("n1")).await.unwrap();
    let api = nodes(&kube);
    let writes = (0..20).map(|i| {
        let patch = Patch::Merge(json!({"metadata": {"labels": {format!("l{i}"): "x"}}}));
        let api = api.clone();
        async move { api.patch("n1", &PatchParams::default(), &patch).await.unwrap() }
    });
    futures::future::join_all(writes).await;
    assert_eq!(api.get("n1").await.unwrap().labels().len(), 20);
}
