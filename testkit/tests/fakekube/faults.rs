//! The fault switches.

use std::time::{Duration, Instant};

use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use mpshare_testkit::fakekube::{Effect, Matching, Times};
use serde_json::json;

use super::{config_map, config_maps, node, nodes, refusal, start};

#[tokio::test]
async fn the_next_requests_fail_and_then_it_works() {
    let kube = start().await;
    kube.create(config_map("a", "1")).await.unwrap();
    let api = config_maps(&kube);
    kube.faults().fail_next(2, 500);
    assert_eq!(refusal(api.get("a").await).0, 500);
    assert_eq!(refusal(api.get("a").await).0, 500);
    api.get("a").await.unwrap();
}

#[tokio::test]
async fn a_fault_hits_only_what_it_matches() {
    let kube = start().await;
    kube.create(node("n1")).await.unwrap();
    let matching = Matching::any().verb("patch").resource("nodes").subresource("status");
    kube.faults().inject(Times::Always, matching, Effect::Fail(403));
    let api = nodes(&kube);
    let patch = Patch::Merge(json!({"status": {"phase": "x"}}));
    let params = PatchParams::default();
    api.patch("n1", &params, &patch).await.unwrap();
    let refused = api.patch_status("n1", &params, &patch).await;
    assert_eq!(refusal(refused), (403, "Forbidden".to_owned()));
    kube.faults().clear();
    api.patch_status("n1", &params, &patch).await.unwrap();
}

#[tokio::test]
async fn a_lost_reply_took_effect() {
    let kube = start().await;
    kube.create(node("n1")).await.unwrap();
    let matching = Matching::any().verb("patch").name("n1");
    kube.faults().inject(Times::Next(1), matching, Effect::LoseReply(500));
    let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    let api = nodes(&kube);
    let lost = api.patch("n1", &PatchParams::default(), &patch).await;
    assert_eq!(refusal(lost).0, 500);
    assert_eq!(api.get("n1").await.unwrap().labels()["a"], "b");
}

#[tokio::test]
async fn a_throttled_answer_says_when_to_retry() {
    let kube = start().await;
    kube.faults().throttle_next(1, 7);
    let request = axum::http::Request::get("/api/v1/nodes").body(Vec::new()).unwrap();
    let client = kube.client_without_retries().unwrap();
    let request = request.map(kube::client::Body::from);
    let answer = client.send(request).await.unwrap();
    assert_eq!(answer.status(), 429);
    assert_eq!(answer.headers()["retry-after"], "7");
}

#[tokio::test]
async fn a_delay_delays() {
    let kube = start().await;
    kube.create(config_map("a", "1")).await.unwrap();
    kube.faults().delay_all(Duration::from_millis(60));
    let begin = Instant::now();
    config_maps(&kube).get("a").await.unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(60));
}

#[tokio::test]
async fn frozen_lists_show_the_past() {
    let kube = start().await;
    kube.create(config_map("a", "1")).await.unwrap();
    kube.freeze_lists();
    kube.create(config_map("b", "1")).await.unwrap();
    kube.delete("configmaps", "default", "a").await.unwrap();
    let api = config_maps(&kube);
    let names = async || {
        let list = api.list(&ListParams::default()).await.unwrap();
        list.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>()
    };
    assert_eq!(names().await, ["a"]);
    kube.faults().clear();
    assert_eq!(names().await, ["b"]);
}
