use serde_json::json;

use crate::scene::{ask, cluster, connect, metric, pod, review, self_made, started};

#[tokio::test]
async fn a_body_that_is_no_review_is_answered_with_what_is_wrong() {
    let kube = cluster().await;
    let webhook = started(&kube, self_made()).await;
    let mut connection = connect(&kube, &webhook).await;
    let cases: [(&[u8], &str); 9] = [
        (b"", "the body is no AdmissionReview: EOF"),
        (b"null", "the body is no AdmissionReview: invalid type: null"),
        (b"[1]", "the body is no AdmissionReview: "),
        (b"\xff\x00", "the body is no AdmissionReview: "),
        (b"{}", "the body is `` of ``, not `AdmissionReview`"),
        (&review(&json!({"uid": ""})), "the AdmissionReview's request has no `uid`"),
        (&review(&json!({"uid": 7})), "the body is no AdmissionReview: invalid type: integer `7`"),
        (&review(&json!({})), "the AdmissionReview's request has no `object`"),
        (
            &review(&json!({"object": {"spec": 7}})),
            "`object` of the AdmissionReview's request can't be read: ",
        ),
    ];
    for path in ["/mutate/warn", "/validate/warn"] {
        for (body, why) in cases {
            let answer = connection.post(path, body).await.unwrap();
            assert_eq!(answer.code, 400, "{answer:?}");
            assert!(answer.body.starts_with(why), "{}: {why}", answer.body);
        }
    }
    let line = r#"mpshare_webhook_reviews_total{verb="mutate",mode="warn",outcome="unreadable"}"#;
    assert_eq!(metric(&webhook, line).await, Some(9));
}

#[tokio::test]
async fn another_mode_or_path_is_not_found() {
    let kube = cluster().await;
    let webhook = started(&kube, self_made()).await;
    let mut connection = connect(&kube, &webhook).await;
    let answer = connection.post("/mutate/loud", &review(&json!({}))).await.unwrap();
    assert_eq!(
        (answer.code, answer.body.as_str()),
        (404, "`loud` is no mode; hint: `enforce`, `warn` or `audit`")
    );
    assert_eq!(connection.post("/metrics", b"").await.unwrap().code, 404);
}

#[tokio::test]
async fn a_body_above_the_limit_is_refused_and_the_next_review_answered() {
    let kube = cluster().await;
    let webhook = started(&kube, self_made()).await;
    let mut large = pod("4");
    large["metadata"]["annotations"] = json!({"a": "x".repeat(3 * 1024 * 1024)});
    let mut connection = connect(&kube, &webhook).await;
    let response = ask(&mut connection, "/mutate/warn", json!({"object": large})).await;
    assert_eq!(response["allowed"], true);
    let body = vec![b' '; 5 * 1024 * 1024];
    // The server may hang up before it has read all of it.
    if let Ok(answer) = connection.post("/mutate/warn", &body).await {
        assert_eq!(answer.code, 400, "{answer:?}");
    }
    let mut connection = connect(&kube, &webhook).await;
    let response = ask(&mut connection, "/mutate/warn", json!({"object": pod("4")})).await;
    assert_eq!(response["allowed"], true);
}

#[tokio::test]
async fn deep_json_is_answered() {
    let kube = cluster().await;
    let webhook = started(&kube, self_made()).await;
    let mut connection = connect(&kube, &webhook).await;
    let deep = "[".repeat(100_000);
    let answer = connection.post("/mutate/warn", deep.as_bytes()).await.unwrap();
    assert_eq!(answer.code, 400);
}
