//! The fake API server as its clients see it: kube's client and watchers, and `kubectl`.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a failing test may panic, and a test that can't run says so"
)]

mod crud;
mod faults;
mod kubectl;
mod patches;
mod pods;
mod seams;
mod watching;

use std::future::Future;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::Api;
use mpshare_testkit::fakekube::FakeKube;
use serde_json::{Value, json};

/// Nothing here takes longer; a test that reaches it fails.
const DEADLINE: Duration = Duration::from_secs(20);

/// The result of a future that must come in time.
async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let Ok(value) = tokio::time::timeout(DEADLINE, future).await else {
        panic!("waited too long for {what}");
    };
    value
}

async fn start() -> FakeKube {
    FakeKube::start().await.unwrap()
}

fn pods(kube: &FakeKube) -> Api<Pod> {
    Api::namespaced(kube.client().unwrap(), "default")
}

fn nodes(kube: &FakeKube) -> Api<Node> {
    Api::all(kube.client().unwrap())
}

fn config_maps(kube: &FakeKube) -> Api<ConfigMap> {
    Api::namespaced(kube.client().unwrap(), "default")
}

fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": value}})
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "example/app:1"}]},
    })
}

fn pod_on(name: &str, node: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["nodeName"] = node.into();
    pod
}

fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {
            "capacity": {"nvidia.com/gpu": "4"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": "v1.33.0"},
        },
    })
}

/// A value as the type that kube's API takes.
fn typed<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// The code and reason of a refusal by the API server.
fn refusal<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> (u16, String) {
    let error = result.unwrap_err();
    let kube::Error::Api(status) = error else {
        panic!("not an answer of the server: {error}");
    };
    (status.code, status.reason)
}
