use std::path::Path;
use std::time::Duration;

use mpshare_testkit::fakekube::{Effect, Matching, Times};
use mpshare_webhook::CertificateSource;
use serde_json::json;

use crate::client::Connection;
use crate::scene::{
    NAME, ask, bundle, cluster, connect, get, pod, secret, secret_text, self_made, start, started,
    until,
};

#[tokio::test]
async fn it_makes_a_certificate_that_the_configurations_trust() {
    let kube = cluster().await;
    let webhook = started(&kube, self_made()).await;
    assert_eq!(String::from_utf8(bundle(&kube)).unwrap(), secret_text(&kube, "ca.crt"));
    let mut connection = connect(&kube, &webhook).await;
    ask(&mut connection, "/mutate/warn", json!({"object": pod("4")})).await;
    assert!(Connection::open(webhook.reviews, "other.ns.svc", &bundle(&kube)).await.is_err());
    let metrics = get(&webhook, "/metrics").await.body;
    assert!(metrics.contains("\nmpshare_webhook_certificate_expiry_timestamp_seconds 1"));
}

#[tokio::test]
async fn replicas_that_start_at_once_have_one_certificate() {
    let kube = cluster().await;
    let source = || CertificateSource::SelfMade(self_made());
    let mut replicas = Vec::new();
    for _ in 0..4 {
        replicas.push(start(&kube, source()).await);
    }
    for replica in &replicas {
        until("ready", async || get(replica, "/readyz").await.code == 200).await;
    }
    until("published", async || !bundle(&kube).is_empty()).await;
    let before = secret(&kube);
    for replica in &replicas {
        connect(&kube, replica).await;
    }
    assert_eq!(secret(&kube), before);
    assert_eq!(kube.list("secrets").len(), 1);
}

#[tokio::test]
async fn a_restart_keeps_the_certificate() {
    let kube = cluster().await;
    started(&kube, self_made()).await.kill().await;
    let before = secret(&kube);
    let webhook = started(&kube, self_made()).await;
    connect(&kube, &webhook).await;
    assert_eq!(secret(&kube), before);
}

#[tokio::test]
async fn a_damaged_secret_is_made_anew_and_what_others_put_there_stays() {
    let kube = cluster().await;
    let webhook = started(&kube, self_made()).await;
    let before = secret_text(&kube, "ca.crt");
    let damage = json!({"data": {"ca.key": "eA==", "note": "eA=="}});
    kube.patch("secrets", "kube-system", "certificates", damage).await.unwrap();
    until("made anew", async || {
        let now = secret_text(&kube, "ca.crt");
        now != before && bundle(&kube) == now.as_bytes()
    })
    .await;
    until("served", async || Connection::open(webhook.reviews, NAME, &bundle(&kube)).await.is_ok())
        .await;
    assert_eq!(secret_text(&kube, "note"), "x");
}

#[tokio::test]
async fn a_bundle_that_somebody_removes_from_a_configuration_comes_back() {
    let kube = cluster().await;
    let _webhook = started(&kube, self_made()).await;
    let mut configuration = kube.list("mutatingwebhookconfigurations").remove(0);
    configuration["webhooks"][1]["clientConfig"]["caBundle"] = json!("eA==");
    let webhooks = json!({"webhooks": configuration["webhooks"]});
    kube.patch("mutatingwebhookconfigurations", "", "mpshare", webhooks).await.unwrap();
    assert!(bundle(&kube).is_empty());
    until("back", async || bundle(&kube) == secret_text(&kube, "ca.crt").as_bytes()).await;
}

#[tokio::test]
async fn while_the_api_server_is_away_what_there_is_is_served() {
    let kube = cluster().await;
    let webhook = started(&kube, self_made()).await;
    for resource in ["secrets", "mutatingwebhookconfigurations", "validatingwebhookconfigurations"]
    {
        kube.faults().inject(Times::Always, Matching::any().resource(resource), Effect::Fail(500));
    }
    let mut connection = connect(&kube, &webhook).await;
    ask(&mut connection, "/mutate/warn", json!({"object": pod("4")})).await;
    assert_eq!(get(&webhook, "/readyz").await.code, 200);
}

#[tokio::test]
async fn it_isnt_ready_without_a_certificate() {
    let kube = cluster().await;
    let never = Matching::any().resource("secrets");
    kube.faults().inject(Times::Always, never, Effect::Fail(403));
    let webhook = start(&kube, CertificateSource::SelfMade(self_made())).await;
    let missing = async || get(&webhook, "/readyz").await.body;
    assert_eq!(missing().await, "there is no certificate yet");
    assert_eq!(get(&webhook, "/healthz").await.code, 200);
    kube.faults().clear();
    until("ready", async || missing().await == "ok").await;
}

#[tokio::test]
async fn files_are_served_and_served_anew_when_they_change() {
    let kube = cluster().await;
    let directory = tempfile::tempdir().unwrap();
    let look_every = Duration::from_millis(20);
    let source = CertificateSource::Mounted { directory: directory.path().to_owned(), look_every };
    let webhook = start(&kube, source).await;
    assert_eq!(get(&webhook, "/readyz").await.code, 503);
    // As made by somebody else.
    let maker = started(&kube, self_made()).await;
    for round in 0..2 {
        let now = bundle(&kube);
        put(directory.path(), "tls.crt", &secret_text(&kube, "tls.crt"));
        put(directory.path(), "tls.key", &secret_text(&kube, "tls.key"));
        until("served", async || Connection::open(webhook.reviews, NAME, &now).await.is_ok()).await;
        let damage = json!({"data": {"ca.key": "eA=="}});
        kube.patch("secrets", "kube-system", "certificates", damage).await.unwrap();
        until("made anew", async || !bundle(&kube).is_empty() && bundle(&kube) != now).await;
        if round == 1 {
            put(directory.path(), "tls.key", "garbage");
            let mut connection = Connection::open(webhook.reviews, NAME, &now).await.unwrap();
            ask(&mut connection, "/mutate/warn", json!({"object": pod("4")})).await;
        }
    }
    drop(maker);
}

fn put(directory: &Path, name: &str, text: &str) {
    std::fs::write(directory.join(name), text).unwrap();
}
