use serde_json::json;

use crate::scene::{ask, cluster, connect, get, pod, review, self_made, started, until};

#[tokio::test]
async fn it_answers_for_a_while_after_it_was_told_to_end_and_sends_callers_elsewhere() {
    let kube = cluster().await;
    let webhook = started(&kube, self_made()).await;
    let mut kept = connect(&kube, &webhook).await;
    ask(&mut kept, "/mutate/warn", json!({"object": pod("4")})).await;
    webhook.stop.cancel();
    until("not ready", async || get(&webhook, "/readyz").await.code == 503).await;
    assert_eq!(get(&webhook, "/readyz").await.body, "it is ending");
    let body = review(&json!({"object": pod("4")}));
    for connection in [&mut kept, &mut connect(&kube, &webhook).await] {
        let answer = connection.post("/mutate/warn", &body).await.unwrap();
        assert_eq!(answer.code, 200);
        assert!(answer.head.contains("connection: close"), "{}", answer.head);
    }
    webhook.task.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_idle_connection_doesnt_keep_it_from_ending() {
    let kube = cluster().await;
    let webhook = started(&kube, self_made()).await;
    let mut idle = connect(&kube, &webhook).await;
    ask(&mut idle, "/mutate/warn", json!({"object": pod("4")})).await;
    webhook.stop.cancel();
    webhook.task.await.unwrap().unwrap();
    assert!(idle.post("/mutate/warn", b"{}").await.is_err());
}
