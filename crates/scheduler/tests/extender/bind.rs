use std::time::Duration;

use mpshare_testkit::fakekube::{Effect, Matching, Times};
use serde_json::{Value, json};

use crate::scene::{Scene, pod};

fn binding() -> Matching {
    Matching::any().resource("pods").subresource("binding")
}

fn node_of(pod: &Value) -> &Value {
    &pod["spec"]["nodeName"]
}

#[tokio::test]
async fn a_bind_sets_node_and_gpu_in_one_write() {
    let scene = Scene::with(&[("n1", &[4, 15])]).await;
    scene.run("a", &["7", "1"], "n1").await;
    let pod = scene.stored("a").unwrap();
    assert_eq!(node_of(&pod), "n1");
    let mut annotations = pod["metadata"]["annotations"].clone();
    for time in ["ALIYUN_COM_GPU_MEM_ASSUME_TIME", "scheduler.framework.gpushare.assume-time"] {
        let nanos = annotations.as_object_mut().unwrap().remove(time).unwrap();
        assert_eq!(nanos.as_str().unwrap().len(), 19);
    }
    insta::assert_json_snapshot!(annotations, @r#"
    {
      "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
      "ALIYUN_COM_GPU_MEM_POD": "8",
      "mpshare.io/allocation": "{\"c0\":{\"GPU-01\":7},\"c1\":{\"GPU-00\":1}}",
      "scheduler.framework.gpushare.allocation": "{\"0\":{\"1\":7},\"1\":{\"0\":1}}",
      "scheduler.framework.gpushare.assigned": "false"
    }
    "#);
}

#[tokio::test]
async fn a_repeated_bind_to_the_same_node_is_a_success_and_to_another_an_error() {
    let scene = Scene::with(&[("n1", &[15]), ("n2", &[15])]).await;
    let pod = scene.run("a", &["7"], "n1").await;
    for _ in 0..2 {
        assert_eq!(scene.bind(&pod, "n1").await, "");
        assert_eq!(scene.bind(&pod, "n2").await, "pod `default/a` is on node `n1` already");
        scene
            .until("the watch has shown the pod", async || {
                scene
                    .get("/gpushare-scheduler/inspect/n1")
                    .await
                    .unwrap()
                    .contains("\"name\":\"a\"")
            })
            .await;
    }
}

#[tokio::test]
async fn a_pod_that_somebody_else_has_bound_is_found_out() {
    let scene = Scene::with(&[("n1", &[15]), ("n2", &[15])]).await;
    let pod = scene.create(pod("a", &["7"])).await;
    scene.bind_by_hand("a", "n1").await;
    assert_eq!(scene.bind(&pod, "n1").await, "");
    assert_eq!(scene.bind(&pod, "n2").await, "pod `default/a` is on node `n1` already");
    let asks = crate::scene::pod("b", &["15"]);
    scene.until_filter(&asks, "n1", false).await;
    scene.until_filter(&asks, "n2", true).await;
}

#[tokio::test]
async fn a_pod_that_is_gone_deleted_or_another_is_refused_and_holds_nothing() {
    let scene = Scene::with(&[("n1", &[15])]).await;
    let mut other = scene.create(pod("a", &["15"])).await;
    other["metadata"]["uid"] = json!("another");
    let gone = "is gone, or another one has its name now";
    assert_eq!(scene.bind(&other, "n1").await, format!("pod `default/a` {gone}"));
    let mut missing = pod("b", &["15"]);
    missing["metadata"]["uid"] = json!("u");
    assert_eq!(scene.bind(&missing, "n1").await, format!("pod `default/b` {gone}"));
    let mut finalized = pod("c", &["15"]);
    finalized["metadata"]["finalizers"] = json!(["example.com/x"]);
    let finalized = scene.create(finalized).await;
    scene.kube.delete("pods", "default", "c").await.unwrap();
    assert_eq!(scene.bind(&finalized, "n1").await, "pod `default/c` is being deleted");
    scene.run("d", &["15"], "n1").await;
}

#[tokio::test]
async fn of_two_binds_for_the_last_room_one_hears_why_it_has_to_wait() {
    let scene = Scene::with(&[("n1", &[15])]).await;
    let a = scene.create(pod("a", &["8"])).await;
    let b = scene.create(pod("b", &["8"])).await;
    let slow = Effect::Delay(Duration::from_millis(50));
    scene.kube.faults().inject(Times::Always, binding(), slow);
    let (a, b) = tokio::join!(scene.bind(&a, "n1"), scene.bind(&b, "n1"));
    let mut answers = [a, b];
    answers.sort();
    assert_eq!(answers[0], "");
    assert_eq!(
        answers[1],
        "not enough `aliyun.com/gpu-mem` on one GPU for 8: 8 of 15 GiB allocated on GPU0"
    );
}

#[tokio::test]
async fn a_success_whose_answer_is_lost_is_a_success() {
    let scene = Scene::with(&[("n1", &[15])]).await;
    for (name, code) in [("a", 500), ("b", 503), ("c", 504), ("d", 408)] {
        let pod = scene.create(pod(name, &["1"])).await;
        scene.kube.faults().inject(Times::Next(1), binding(), Effect::LoseReply(code));
        assert_eq!(scene.bind(&pod, "n1").await, "", "{code}");
        assert_eq!(node_of(&scene.stored(name).unwrap()), "n1");
    }
}

#[tokio::test]
async fn a_bind_that_was_refused_for_certain_frees_its_room_and_another_can_be_repeated() {
    let scene = Scene::with(&[("n1", &[15])]).await;
    let a = scene.create(pod("a", &["15"])).await;
    let b = scene.create(pod("b", &["15"])).await;
    scene.kube.faults().inject(Times::Next(1), binding(), Effect::Fail(403));
    let error = scene.bind(&a, "n1").await;
    assert!(error.starts_with("the API server refuses to bind pod `default/a`"), "{error}");
    scene.kube.faults().inject(Times::Next(1), binding(), Effect::Fail(500));
    let error = scene.bind(&b, "n1").await;
    assert!(error.starts_with("nobody knows yet whether pod `default/b` was bound"), "{error}");
    assert!(scene.bind(&a, "n1").await.starts_with("not enough"));
    assert_eq!(scene.bind(&b, "n1").await, "");
}

#[tokio::test]
async fn a_deleted_pod_holds_its_gpu_until_it_has_ended() {
    let mut scene = Scene::with(&[("n1", &[15])]).await;
    scene.run("a", &["15"], "n1").await;
    let asks = pod("b", &["15"]);
    scene.kube.delete("pods", "default", "a").await.unwrap();
    let terminating = scene.stored("a").unwrap();
    assert!(terminating["metadata"]["deletionTimestamp"].is_string());
    scene.until_filter(&asks, "n1", false).await;
    scene.restart().await;
    assert_eq!(scene.filter(&asks, &["n1"]).await["NodeNames"], json!([]));
    scene.kube.patch_status("pods", "default", "a", json!({"phase": "Failed"})).await.unwrap();
    scene.until_filter(&asks, "n1", true).await;
}

#[tokio::test]
async fn a_bind_that_is_repeated_after_the_pod_has_ended_holds_nothing() {
    let mut scene = Scene::with(&[("n1", &[15])]).await;
    let pod = scene.run("a", &["15"], "n1").await;
    scene.kube.patch_status("pods", "default", "a", json!({"phase": "Succeeded"})).await.unwrap();
    // The new one's list leaves the pod out.
    scene.restart().await;
    assert_eq!(scene.bind(&pod, "n1").await, "");
    scene.run("b", &["15"], "n1").await;
}

#[tokio::test]
async fn what_a_user_writes_into_the_annotation_frees_nothing() {
    let scene = Scene::with(&[("n1", &[15, 15])]).await;
    for (at, text) in
        ["", "{", "{\"c0\":{\"GPU-00\":1}}", "{\"c0\":{\"GPU-99\":8}}"].iter().enumerate()
    {
        let name = format!("p{at}");
        let mut rogue = pod(&name, &["8"]);
        rogue["metadata"]["annotations"] = json!({"mpshare.io/allocation": text});
        scene.create(rogue).await;
        scene.bind_by_hand(&name, "n1").await;
        let full = pod("x", &["8"]);
        scene.until_filter(&full, "n1", false).await;
        scene
            .kube
            .patch_status("pods", "default", &name, json!({"phase": "Failed"}))
            .await
            .unwrap();
        scene.until_filter(&full, "n1", true).await;
    }
}

#[tokio::test]
async fn units_of_replicas_are_planned_where_several_are_asked_for() {
    let scene = Scene::with(&[("n1", &[2, 3])]).await;
    let shares: Vec<Value> = serde_json::from_str(&crate::scene::gpus(&[2, 3])).unwrap();
    let shares: Vec<Value> = shares
        .into_iter()
        .map(|mut card| {
            card["resource"] = json!("nvidia.com/gpu");
            card
        })
        .collect();
    let text = Value::Array(shares).to_string();
    let patch = json!({"metadata": {"annotations": {"mpshare.io/gpus": text}}});
    scene.kube.patch("nodes", "", "n1", patch).await.unwrap();
    let asks = |name: &str, units: &str| {
        let text = pod(name, &[units]).to_string();
        serde_json::from_str::<Value>(&text.replace("aliyun.com/gpu-mem", "nvidia.com/gpu"))
            .unwrap()
    };
    scene.until_filter(&asks("a", "4"), "n1", false).await;
    scene.until_filter(&asks("a", "3"), "n1", true).await;
    let pod = scene.create(asks("a", "3")).await;
    assert_eq!(scene.bind(&pod, "n1").await, "");
    let stored = scene.stored("a").unwrap();
    let allocation = &stored["metadata"]["annotations"]["mpshare.io/allocation"];
    assert_eq!(allocation, "{\"c0\":{\"GPU-01\":3}}");
}
