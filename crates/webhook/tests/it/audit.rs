use serde_json::json;

use crate::scene::{ask, cluster, connect, metric, pod, self_made, started, until};

#[tokio::test]
async fn what_audit_lets_pass_is_an_event_about_the_pod_and_a_dry_run_isnt() {
    let kube = cluster().await;
    let webhook = started(&kube, self_made()).await;
    let mut connection = connect(&kube, &webhook).await;
    let mut generated = pod("10G");
    generated["metadata"] = json!({"generateName": "web-7d-"});
    let dry = json!({"object": pod("10G"), "dryRun": true});
    ask(&mut connection, "/validate/audit", dry).await;
    ask(&mut connection, "/validate/audit", json!({"object": generated})).await;
    until("an event", async || !kube.list("events").is_empty()).await;
    let events = kube.list("events");
    assert_eq!(events[0]["involvedObject"]["kind"], "Pod");
    assert_eq!(events[0]["involvedObject"]["namespace"], "default");
    assert!(events.iter().all(|event| event["involvedObject"]["name"] == "web-7d-"));
    assert_eq!(events[0]["reason"], "AdmissionAudit");
    assert_eq!(events[0]["type"], "Warning");
    assert!(events[0]["message"].as_str().unwrap().contains("hint: "));
    assert_eq!(metric(&webhook, "mpshare_webhook_events_dropped_total").await, Some(0));
}

#[tokio::test]
async fn an_event_that_cant_be_written_is_counted_and_reviews_go_on() {
    let kube = cluster().await;
    let webhook = started(&kube, self_made()).await;
    let mut connection = connect(&kube, &webhook).await;
    let nowhere = json!({"object": pod("10G"), "namespace": "gone"});
    ask(&mut connection, "/validate/audit", nowhere).await;
    let line = "mpshare_webhook_events_dropped_total";
    until("counted", async || metric(&webhook, line).await > Some(0)).await;
    let response = ask(&mut connection, "/validate/audit", json!({"object": pod("4")})).await;
    assert_eq!(response["allowed"], true);
}
