use serde_json::{Value, json};

use crate::scene::{OWN, ask, cluster, connect, metric, patch, pod, self_made, started};

/// What isn't valid: units are whole numbers.
const BAD: &str = "10G";

const ALLOWED: &str = r#"{"allowed":true,"uid":"0a-1b"}"#;

fn annotated(value: &str) -> Value {
    let mut pod = pod("4");
    // As it is after mutation.
    pod["spec"]["containers"][0]["env"][0]["value"] = json!("0=4096M");
    pod["metadata"]["annotations"] = json!({"mpshare.io/allocation": value, "other": "x"});
    pod
}

#[tokio::test]
async fn a_pod_is_patched_and_one_that_says_all_already_isnt() {
    let kube = cluster().await;
    let webhook = started(&kube, self_made()).await;
    let mut connection = connect(&kube, &webhook).await;
    for mode in ["enforce", "warn", "audit"] {
        let path = format!("/mutate/{mode}");
        let response = ask(&mut connection, &path, json!({"object": pod("4")})).await;
        assert_eq!(response["allowed"], true);
        let mut object = pod("4");
        let operations: json_patch::Patch = serde_json::from_value(patch(&response)).unwrap();
        json_patch::patch(&mut object, &operations).unwrap();
        assert_eq!(object["spec"]["schedulerName"], "gpu");
        let limit = object["spec"]["containers"][0]["env"][0]["value"].as_str().unwrap();
        assert!(limit.ends_with("=4096M"), "{limit}");
        let again = ask(&mut connection, &path, json!({"object": pod("4")})).await;
        assert_eq!(again, response, "the same pod has the same patch");
    }
    let plain = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]}});
    let response = ask(&mut connection, "/mutate/enforce", json!({"object": plain})).await;
    assert_eq!(response.to_string(), ALLOWED);
}

#[tokio::test]
async fn a_bad_pod_is_refused_warned_about_or_let_pass_by_the_mode() {
    let kube = cluster().await;
    let webhook = started(&kube, self_made()).await;
    let mut connection = connect(&kube, &webhook).await;
    let request = json!({"object": pod(BAD)});

    let refused = ask(&mut connection, "/validate/enforce", request.clone()).await;
    assert_eq!(refused["allowed"], false);
    assert_eq!(refused["status"]["code"], 403);
    assert_eq!(refused["status"]["reason"], "Forbidden");
    let message = refused["status"]["message"].as_str().unwrap();
    assert!(message.contains(BAD) && message.contains("hint: "), "{message}");

    let warned = ask(&mut connection, "/validate/warn", request.clone()).await;
    assert_eq!((&warned["allowed"], &warned["status"]), (&json!(true), &Value::Null));
    let warnings = warned["warnings"].as_array().unwrap();
    assert!(warnings.iter().all(|it| message.contains(it.as_str().unwrap())), "{warnings:?}");
    assert!(!warnings.is_empty());

    let audited = ask(&mut connection, "/validate/audit", request).await;
    assert_eq!(audited.to_string(), ALLOWED);
    for (mode, outcome) in [("enforce", "denied"), ("warn", "warned"), ("audit", "audited")] {
        let line = format!(
            r#"mpshare_webhook_reviews_total{{verb="validate",mode="{mode}",outcome="{outcome}"}}"#
        );
        assert_eq!(metric(&webhook, &line).await, Some(1), "{line}");
    }
}

#[tokio::test]
async fn nothing_is_ever_refused_by_mutating() {
    let kube = cluster().await;
    let webhook = started(&kube, self_made()).await;
    let mut connection = connect(&kube, &webhook).await;
    let response = ask(&mut connection, "/mutate/enforce", json!({"object": pod(BAD)})).await;
    assert_eq!(response["allowed"], true);
}

#[tokio::test]
async fn annotations_of_ours_are_set_by_our_accounts_only_in_every_write_that_can() {
    let kube = cluster().await;
    let webhook = started(&kube, self_made()).await;
    let mut connection = connect(&kube, &webhook).await;
    let binding = || {
        let annotations = json!({"mpshare.io/allocation": "{}"});
        json!({"metadata": {"name": "a", "annotations": annotations}, "target": {"name": "n1"}})
    };
    let resource = |name: &str| json!({"group": "", "version": "v1", "resource": name});
    let update = |sub: &str, before: Value, after: Value| {
        json!({
            "operation": "UPDATE", "subResource": sub, "name": "a",
            "oldObject": before, "object": after,
        })
    };
    let writes = [
        json!({"object": annotated("{}")}),
        update("", pod("4"), annotated("{}")),
        update("", annotated("{}"), annotated("[]")),
        update("", annotated("{}"), pod("4")),
        update("status", pod("4"), annotated("{}")),
        json!({"subResource": "binding", "object": binding()}),
        json!({"resource": resource("bindings"), "object": binding()}),
    ];
    for write in writes {
        let theirs = ask(&mut connection, "/validate/enforce", write.clone()).await;
        assert_eq!(theirs["status"]["code"], 403, "{write}");
        let mut by_us = write.clone();
        by_us["userInfo"] = json!({"username": OWN});
        let ours = ask(&mut connection, "/validate/enforce", by_us).await;
        assert_eq!(ours.to_string(), ALLOWED, "{write}");
    }
    let mut changed = annotated("{}");
    changed["metadata"]["annotations"]["other"] = json!("y");
    for write in
        [update("", annotated("{}"), changed.clone()), update("status", changed, annotated("{}"))]
    {
        let response = ask(&mut connection, "/validate/enforce", write).await;
        assert_eq!(response.to_string(), ALLOWED, "annotations of others are theirs");
    }
}

#[tokio::test]
async fn what_isnt_a_write_of_a_pod_is_let_pass() {
    let kube = cluster().await;
    let webhook = started(&kube, self_made()).await;
    let mut connection = connect(&kube, &webhook).await;
    let resource =
        |group: &str, name: &str| json!({"group": group, "version": "v1", "resource": name});
    let writes = [
        json!({"operation": "DELETE", "oldObject": annotated("{}")}),
        json!({"operation": "CONNECT", "subResource": "exec", "object": {"command": ["sh"]}}),
        json!({"operation": "UPDATE", "subResource": "resize", "object": pod(BAD)}),
        json!({"resource": resource("apps", "deployments"), "object": pod(BAD)}),
        json!({"resource": resource("metrics.k8s.io", "pods"), "object": pod(BAD)}),
        json!({"resource": resource("", "secrets"), "object": {"data": 7}}),
        json!({"resource": null, "operation": null}),
    ];
    for write in writes {
        for path in ["/mutate/enforce", "/validate/enforce"] {
            let response = ask(&mut connection, path, write.clone()).await;
            assert_eq!(response.to_string(), ALLOWED, "{path}: {write}");
        }
    }
}

#[tokio::test]
async fn a_container_for_debugging_isnt_held_responsible_for_its_pod() {
    let kube = cluster().await;
    let webhook = started(&kube, self_made()).await;
    let mut connection = connect(&kube, &webhook).await;
    let mut with = pod(BAD);
    with["spec"]["ephemeralContainers"] = json!([{"name": "debug", "image": "i"}]);
    let write = json!({
        "operation": "UPDATE", "subResource": "ephemeralcontainers", "name": "a",
        "oldObject": pod(BAD), "object": with,
    });
    let response = ask(&mut connection, "/validate/enforce", write.clone()).await;
    assert_eq!(response.to_string(), ALLOWED);
    // The pod's other containers can't be changed any more.
    let response = ask(&mut connection, "/mutate/enforce", write).await;
    assert_eq!(response.to_string(), ALLOWED);
}
