//! A cluster with webhooks, and what a test asks of both.

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mpshare_core::admission::Policy;
use mpshare_testkit::fakekube::FakeKube;
use mpshare_webhook::{CertificateSource, Listeners, Lives, Options, RunError, SelfMade};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::client::{Answer, Connection};

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The name by which API servers call.
pub(crate) const NAME: &str = "mpshare-webhook.kube-system.svc";

/// The user that may set our annotations.
pub(crate) const OWN: &str = "system:serviceaccount:kube-system:mpshare-scheduler";

/// A running webhook.
pub(crate) struct Webhook {
    pub(crate) reviews: SocketAddr,
    pub(crate) status: SocketAddr,
    pub(crate) stop: CancellationToken,
    pub(crate) task: JoinHandle<Result<(), RunError>>,
}

impl Webhook {
    /// Ends it, as `kill -9` does.
    pub(crate) async fn kill(self) {
        self.task.abort();
        drop(self.task.await);
    }
}

/// An API server with webhook configurations of two entries each.
pub(crate) async fn cluster() -> FakeKube {
    let kube = FakeKube::start().await.unwrap();
    let card = json!([{
        "uuid": "GPU-00", "index": 0, "model": "Tesla T4", "memoryMiB": 15360, "unitMiB": 1024,
        "units": 15, "state": "Ready",
    }]);
    let annotations = json!({"mpshare.io/gpus": card.to_string()});
    let metadata = json!({"name": "n1", "annotations": annotations});
    kube.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata})).await.unwrap();
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        let entry = |mode: &str| {
            json!({
                "name": format!("{mode}.mpshare.io"),
                "clientConfig": {"service": {"name": "mpshare-webhook", "namespace": "kube-system"}},
                "unknownField": {"kept": true},
            })
        };
        kube.create(json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": "mpshare"}, "webhooks": [entry("enforce"), entry("audit")],
        }))
        .await
        .unwrap();
    }
    kube
}

/// Certificates that the webhook makes itself, with long lives and fast looks.
pub(crate) fn self_made() -> SelfMade {
    SelfMade {
        namespace: "kube-system".to_owned(),
        secret: "certificates".to_owned(),
        service: "mpshare-webhook".to_owned(),
        configuration: "mpshare".to_owned(),
        lives: Lives::default(),
        settle: Duration::from_millis(300),
        look_every: Duration::from_millis(30),
    }
}

/// Starts a webhook; it may not be ready yet.
pub(crate) async fn start(kube: &FakeKube, certificates: CertificateSource) -> Webhook {
    let reviews = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let status = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addresses = (reviews.local_addr().unwrap(), status.local_addr().unwrap());
    let options = Options {
        policy: Policy { scheduler_name: Some("gpu".to_owned()), ..Policy::default() },
        own_accounts: [OWN.to_owned()].into(),
        certificates,
        drain: Duration::from_millis(500),
    };
    let stop = CancellationToken::new();
    let listeners = Listeners { reviews, status };
    let run = mpshare_webhook::run(kube.client().unwrap(), listeners, options, stop.clone());
    Webhook { reviews: addresses.0, status: addresses.1, stop, task: tokio::spawn(run) }
}

/// Starts a webhook and waits until it is ready and trusted.
pub(crate) async fn started(kube: &FakeKube, certificates: SelfMade) -> Webhook {
    let webhook = start(kube, CertificateSource::SelfMade(certificates)).await;
    until("ready", async || get(&webhook, "/readyz").await.code == 200).await;
    until("published", async || !bundle(kube).is_empty()).await;
    webhook
}

/// Waits for a condition.
pub(crate) async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let wait = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// The CA bundle that an API server has, empty until all entries have the same one.
pub(crate) fn bundle(kube: &FakeKube) -> Vec<u8> {
    let mut bundles = Vec::new();
    for plural in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
        for configuration in kube.list(plural) {
            for entry in configuration["webhooks"].as_array().unwrap() {
                assert_eq!(entry["unknownField"], json!({"kept": true}));
                bundles.push(entry["clientConfig"]["caBundle"].as_str().unwrap_or("").to_owned());
            }
        }
    }
    assert_eq!(bundles.len(), 4);
    bundles.dedup();
    if bundles.len() == 1 { STANDARD.decode(&bundles[0]).unwrap() } else { Vec::new() }
}

/// The Secret's data.
pub(crate) fn secret(kube: &FakeKube) -> Value {
    let all = kube.list("secrets");
    all.first().map(|secret| secret["data"].clone()).unwrap_or_default()
}

/// A key of the Secret, decoded.
pub(crate) fn secret_text(kube: &FakeKube, key: &str) -> String {
    let text = secret(kube)[key].as_str().map(|text| STANDARD.decode(text).unwrap());
    String::from_utf8(text.unwrap_or_default()).unwrap()
}

/// A new connection that trusts what the API server has.
pub(crate) async fn connect(kube: &FakeKube, webhook: &Webhook) -> Connection {
    Connection::open(webhook.reviews, NAME, &bundle(kube)).await.unwrap()
}

/// A GET of the address for probes.
pub(crate) async fn get(webhook: &Webhook, path: &str) -> Answer {
    let mut stream = TcpStream::connect(webhook.status).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { code, head: head.to_owned(), body: body.to_owned() }
}

/// The value of a metric's line.
pub(crate) async fn metric(webhook: &Webhook, line: &str) -> Option<u64> {
    let text = get(webhook, "/metrics").await.body;
    let value = text.lines().find_map(|it| it.strip_prefix(line)?.strip_prefix(' '));
    value.and_then(|value| value.parse().ok())
}

/// A review of this request.
pub(crate) fn review(request: &Value) -> Vec<u8> {
    let mut whole = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "0a-1b", "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "default", "operation": "CREATE", "userInfo": {"username": "alice"},
            "object": null, "oldObject": null, "dryRun": false,
            "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
        },
    });
    for (key, value) in request.as_object().unwrap() {
        whole["request"][key] = value.clone();
    }
    whole.to_string().into_bytes()
}

/// The `response` of the answer to a review.
pub(crate) async fn ask(connection: &mut Connection, path: &str, request: Value) -> Value {
    let answer = connection.post(path, &review(&request)).await.unwrap();
    assert_eq!(answer.code, 200, "{answer:?}");
    let whole: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(whole["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(whole["kind"], "AdmissionReview");
    assert_eq!(whole["response"]["uid"], "0a-1b");
    whole["response"].clone()
}

/// A pod whose container asks for so much, and has a limit in plain bytes as the TKE document does.
pub(crate) fn pod(units: &str) -> Value {
    let resources = json!({"aliyun.com/gpu-mem": units});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"containers": [{
            "name": "c", "image": "i",
            "env": [{"name": "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "value": "4294967296"}],
            "resources": {"limits": resources, "requests": resources},
        }]},
    })
}

/// The operations of an answer's patch.
pub(crate) fn patch(response: &Value) -> Value {
    assert_eq!(response["patchType"], "JSONPatch");
    let text = STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
    serde_json::from_slice(&text).unwrap()
}
