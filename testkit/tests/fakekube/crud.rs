//! Creating, reading, listing, replacing and deleting.

use kube::api::{DeleteParams, ListParams, PostParams, PropagationPolicy};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, ResourceExt};
use mpshare_testkit::fakekube::{ResourceType, Scope};
use serde_json::json;

use super::{config_map, config_maps, node, nodes, pod, pods, refusal, start, typed};

#[tokio::test]
async fn a_created_object_gets_an_identity() {
    let kube = start().await;
    let made = config_maps(&kube)
        .create(&PostParams::default(), &typed(config_map("a", "1")))
        .await
        .unwrap();
    assert_eq!(made.uid().unwrap().len(), 36);
    assert!(made.creation_timestamp().is_some());
    assert!(made.resource_version().unwrap().parse::<u64>().unwrap() > 0);
    assert_eq!(made.namespace().as_deref(), Some("default"));
}

#[tokio::test]
async fn generate_name_makes_distinct_names() {
    let kube = start().await;
    let api = config_maps(&kube);
    let mut body = config_map("", "1");
    body["metadata"] = json!({"generateName": "job-"});
    let first = api.create(&PostParams::default(), &typed(body.clone())).await.unwrap();
    let second = api.create(&PostParams::default(), &typed(body)).await.unwrap();
    assert!(first.name_any().starts_with("job-") && first.name_any().len() == 9);
    assert_ne!(first.name_any(), second.name_any());
}

#[tokio::test]
async fn a_second_create_already_exists() {
    let kube = start().await;
    let api = config_maps(&kube);
    let body = typed(config_map("a", "1"));
    api.create(&PostParams::default(), &body).await.unwrap();
    let again = api.create(&PostParams::default(), &body).await;
    assert_eq!(refusal(again), (409, "AlreadyExists".to_owned()));
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let kube = start().await;
    assert_eq!(refusal(pods(&kube).get("x").await), (404, "NotFound".to_owned()));
    let elsewhere: Api<k8s_openapi::api::core::v1::ConfigMap> =
        Api::namespaced(kube.client().unwrap(), "nowhere");
    let refused = elsewhere.create(&PostParams::default(), &typed(config_map("a", "1"))).await;
    assert_eq!(refusal(refused), (404, "NotFound".to_owned()), "the namespace doesn't exist");
}

#[tokio::test]
async fn a_replace_with_an_old_version_conflicts() {
    let kube = start().await;
    let api = config_maps(&kube);
    let old = api.create(&PostParams::default(), &typed(config_map("a", "1"))).await.unwrap();
    let mut newer = old.clone();
    newer.data = Some([("k".to_owned(), "2".to_owned())].into());
    api.replace("a", &PostParams::default(), &newer).await.unwrap();
    let stale = api.replace("a", &PostParams::default(), &old).await;
    assert_eq!(refusal(stale), (409, "Conflict".to_owned()));
}

#[tokio::test]
async fn a_replace_that_changes_nothing_keeps_the_version() {
    let kube = start().await;
    let api = config_maps(&kube);
    let made = api.create(&PostParams::default(), &typed(config_map("a", "1"))).await.unwrap();
    let same = api.replace("a", &PostParams::default(), &made).await.unwrap();
    assert_eq!(made.resource_version(), same.resource_version());
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let kube = start().await;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    config_maps(&kube).create(&dry, &typed(config_map("a", "1"))).await.unwrap();
    assert_eq!(kube.get("configmaps", "default", "a"), None);
}

#[tokio::test]
async fn lists_select_by_labels_and_fields() {
    let kube = start().await;
    for (name, tier, on) in [("a", "gold", "n1"), ("b", "tin", "n1"), ("c", "gold", "n2")] {
        let mut body = pod(name);
        body["metadata"]["labels"] = json!({"tier": tier});
        body["spec"]["nodeName"] = on.into();
        kube.create(body).await.unwrap();
    }
    let names = async |params: ListParams| {
        let list = pods(&kube).list(&params).await.unwrap();
        list.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>()
    };
    let all = ListParams::default();
    assert_eq!(names(all.clone().labels("tier in (gold,iron)")).await, ["a", "c"]);
    assert_eq!(names(all.clone().labels("tier!=gold")).await, ["b"]);
    assert_eq!(names(all.clone().fields("spec.nodeName=n1")).await, ["a", "b"]);
    assert_eq!(names(all.clone().fields("spec.nodeName=n1").labels("tier=gold")).await, ["a"]);
    assert_eq!(names(all.clone().fields("status.phase!=Pending")).await, Vec::<String>::new());
    let unknown = pods(&kube).list(&all.fields("spec.color=red")).await;
    assert_eq!(refusal(unknown), (400, "BadRequest".to_owned()));
}

#[tokio::test]
async fn pages_show_one_snapshot() {
    let kube = start().await;
    for name in ["a", "b", "c", "d", "e"] {
        kube.create(config_map(name, "1")).await.unwrap();
    }
    let api = config_maps(&kube);
    let first = api.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!(first.metadata.remaining_item_count, Some(3));
    kube.delete("configmaps", "default", "d").await.unwrap();
    kube.create(config_map("cc", "1")).await.unwrap();
    let token = first.metadata.continue_.unwrap();
    let rest = api.list(&ListParams::default().continue_token(&token)).await.unwrap();
    let names: Vec<_> = rest.items.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["c", "d", "e"]);
    kube.compact_history();
    let late = api.list(&ListParams::default().continue_token(&token)).await;
    assert_eq!(refusal(late), (410, "Expired".to_owned()));
}

#[tokio::test]
async fn a_finalizer_holds_a_deleted_object() {
    let kube = start().await;
    let mut body = config_map("a", "1");
    body["metadata"]["finalizers"] = json!(["example.com/hold"]);
    kube.create(body).await.unwrap();
    kube.delete("configmaps", "default", "a").await.unwrap();
    let held = kube.get("configmaps", "default", "a").unwrap();
    assert!(held["metadata"]["deletionTimestamp"].is_string());
    let api = config_maps(&kube);
    let mut open = api.get("a").await.unwrap();
    open.metadata.finalizers = None;
    api.replace("a", &PostParams::default(), &open).await.unwrap();
    assert_eq!(kube.get("configmaps", "default", "a"), None);
}

#[tokio::test]
async fn a_delete_with_another_objects_uid_conflicts() {
    let kube = start().await;
    kube.create(config_map("a", "1")).await.unwrap();
    let params = DeleteParams {
        preconditions: Some(kube::api::Preconditions {
            uid: Some("other".to_owned()),
            resource_version: None,
        }),
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    let refused = config_maps(&kube).delete("a", &params).await;
    assert_eq!(refusal(refused.map(|_| ())), (409, "Conflict".to_owned()));
}

#[tokio::test]
async fn delete_collection_takes_the_selected_ones() {
    let kube = start().await;
    for name in ["a", "b"] {
        let mut body = config_map(name, "1");
        body["metadata"]["labels"] = json!({"name": name});
        kube.create(body).await.unwrap();
    }
    let selected = ListParams::default().labels("name=a");
    config_maps(&kube).delete_collection(&DeleteParams::default(), &selected).await.unwrap();
    assert_eq!(kube.get("configmaps", "default", "a"), None);
    assert!(kube.get("configmaps", "default", "b").is_some());
}

#[tokio::test]
async fn a_node_registers_with_its_status_and_the_spec_write_keeps_it() {
    let kube = start().await;
    let api = nodes(&kube);
    let mut made = api.create(&PostParams::default(), &typed(node("n1"))).await.unwrap();
    assert!(made.status.is_some(), "the kubelet registers a node with its status");
    made.status = None;
    made.labels_mut().insert("a".to_owned(), "b".to_owned());
    let kept = api.replace("n1", &PostParams::default(), &made).await.unwrap();
    assert!(kept.status.is_some());
}

#[tokio::test]
async fn a_registered_kind_works_like_a_custom_resource() {
    let kube = start().await;
    kube.register(ResourceType::custom(
        "example.com",
        "v1",
        "widgets",
        "Widget",
        Scope::Namespaced,
    ));
    let kind = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("example.com", "v1", "Widget"),
        "widgets",
    );
    let api: Api<DynamicObject> = Api::namespaced_with(kube.client().unwrap(), "default", &kind);
    let body = json!({"apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "w"}, "spec": {"n": 1}, "status": {"dropped": true}});
    let mut made = api.create(&PostParams::default(), &typed(body)).await.unwrap();
    assert_eq!(made.metadata.generation, Some(1));
    assert_eq!(made.data.get("status"), None, "status has its own subresource");
    made.data["spec"]["n"] = json!(2);
    let changed = api.replace("w", &PostParams::default(), &made).await.unwrap();
    assert_eq!(changed.metadata.generation, Some(2));
}

#[tokio::test]
async fn both_event_apis_show_the_same_event() {
    let kube = start().await;
    let client = kube.client().unwrap();
    let recorder = kube::runtime::events::Recorder::new(client.clone(), "tester".into());
    let about = k8s_openapi::api::core::v1::ObjectReference {
        kind: Some("Node".to_owned()),
        name: Some("n1".to_owned()),
        ..Default::default()
    };
    let event = kube::runtime::events::Event {
        type_: kube::runtime::events::EventType::Warning,
        reason: "Refused".to_owned(),
        note: Some("too big".to_owned()),
        action: "Planning".to_owned(),
        secondary: None,
    };
    recorder.publish(&event, &about).await.unwrap();
    recorder.publish(&event, &about).await.unwrap();
    let seen = kube.events_of("Node", "n1");
    assert_eq!(seen.len(), 1, "the second one is a series of the first");
    assert_eq!(seen[0]["message"], "too big");
    assert_eq!(seen[0]["series"]["count"], 2);
    let old: Api<k8s_openapi::api::core::v1::Event> = Api::default_namespaced(client);
    let list = old.list(&ListParams::default().fields("involvedObject.name=n1")).await.unwrap();
    assert_eq!(list.items[0].reason.as_deref(), Some("Refused"));
}

#[tokio::test]
async fn an_event_outside_its_objects_namespace_is_refused() {
    let kube = start().await;
    let refused = kube
        .create(json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": "e", "namespace": "kube-system"},
            "involvedObject": {"kind": "Node", "name": "n1"},
        }))
        .await
        .unwrap_err();
    assert_eq!((refused.code, refused.reason), (422, "Invalid"));
}
