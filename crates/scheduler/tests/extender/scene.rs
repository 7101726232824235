//! A cluster with an extender, and what a test asks of both.

use std::time::Duration;

use axum::http::Request;
use kube::{Client, Config};
use mpshare_scheduler::Options;
use mpshare_testkit::fakekube::FakeKube;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(20);

/// An API server and an extender.
pub(crate) struct Scene {
    pub(crate) kube: FakeKube,
    extender: Option<Running>,
}

struct Running {
    client: Client,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// The annotation of cards with so many units each.
pub(crate) fn gpus(units: &[u64]) -> String {
    let cards = units.iter().enumerate().map(|(index, units)| {
        json!({
            "uuid": format!("GPU-0{index}"), "index": index, "model": "Tesla T4",
            "memoryMiB": units * 1024, "unitMiB": 1024, "units": units, "state": "Ready",
        })
    });
    Value::Array(cards.collect()).to_string()
}

/// A pod with containers that ask for so many units each.
pub(crate) fn pod(name: &str, units: &[&str]) -> Value {
    let containers = units.iter().enumerate().map(|(at, units)| {
        let limits = json!({"aliyun.com/gpu-mem": units});
        json!({
            "name": format!("c{at}"), "image": "i",
            "resources": {"limits": limits, "requests": limits},
        })
    });
    let containers: Vec<Value> = containers.collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": containers},
    })
}

impl Scene {
    /// A cluster whose nodes have cards with so many units each.
    pub(crate) async fn with(nodes: &[(&str, &[u64])]) -> Self {
        let kube = FakeKube::start().await.unwrap();
        for (name, units) in nodes {
            let annotations = json!({"mpshare.io/gpus": gpus(units)});
            kube.create(json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "annotations": annotations},
            }))
            .await
            .unwrap();
        }
        let mut scene = Self { kube, extender: None };
        scene.restart().await;
        scene
    }

    /// Ends the extender and starts another one.
    pub(crate) async fn restart(&mut self) {
        if let Some(running) = self.extender.take() {
            running.stop.cancel();
            drop(running.client);
            running.task.await.unwrap();
        }
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let (client, token) = (self.kube.client().unwrap(), stop.clone());
        let task = tokio::spawn(async move {
            mpshare_scheduler::run(client, listener, Options::default(), token).await.unwrap();
        });
        let mut config = Config::new(format!("http://{address}").parse().unwrap());
        config.default_retry = false;
        let client = Client::try_from(config).unwrap();
        self.extender = Some(Running { client, stop, task });
        self.until("the extender is ready", async || self.get("/readyz").await.is_ok()).await;
    }

    /// Waits for a condition.
    pub(crate) async fn until(&self, what: &str, condition: impl AsyncFn() -> bool) {
        let wait = async {
            while !condition().await {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("never: {what}"));
    }

    /// Creates a pod and returns it with its UID.
    pub(crate) async fn create(&self, pod: Value) -> Value {
        self.kube.create(pod).await.unwrap()
    }

    /// The pod as the API server has it.
    pub(crate) fn stored(&self, name: &str) -> Option<Value> {
        let is_it = |pod: &Value| pod["metadata"]["name"] == name;
        self.kube.list("pods").into_iter().find(is_it)
    }

    /// The answer to a GET of the extender.
    pub(crate) async fn get(&self, path: &str) -> Result<String, kube::Error> {
        let request = Request::get(path).body(Vec::new()).unwrap();
        self.extender.as_ref().unwrap().client.request_text(request).await
    }

    /// The answer to a text that is sent to one of the scheduler's routes.
    pub(crate) async fn send(&self, verb: &str, body: impl Into<Vec<u8>>) -> Value {
        let request = Request::post(format!("/gpushare-scheduler/{verb}"))
            .header("content-type", "application/json")
            .body(body.into())
            .unwrap();
        let text = self.extender.as_ref().unwrap().client.request_text(request).await.unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// The answer to `filter` for nodes by name.
    pub(crate) async fn filter(&self, pod: &Value, nodes: &[&str]) -> Value {
        let body = json!({"Pod": pod, "Nodes": null, "NodeNames": nodes});
        self.send("filter", body.to_string()).await
    }

    /// The error of a bind; empty after a success.
    pub(crate) async fn bind(&self, pod: &Value, node: &str) -> String {
        let metadata = &pod["metadata"];
        let body = json!({
            "PodName": metadata["name"], "PodNamespace": metadata["namespace"],
            "PodUID": metadata["uid"], "Node": node,
        });
        self.send("bind", body.to_string()).await["Error"].as_str().unwrap().to_owned()
    }

    /// Creates a pod and binds it.
    pub(crate) async fn run(&self, name: &str, units: &[&str], node: &str) -> Value {
        let pod = self.create(pod(name, units)).await;
        assert_eq!(self.bind(&pod, node).await, "");
        pod
    }

    /// Waits until `filter` says this of a node.
    pub(crate) async fn until_filter(&self, pod: &Value, node: &str, fits: bool) {
        let condition = async || {
            let answer = self.filter(pod, &[node]).await;
            answer["NodeNames"].as_array().unwrap().is_empty() != fits
        };
        self.until("filter's answer", condition).await;
    }
}

impl Scene {
    /// Binds a pod as somebody does who asks no extender.
    pub(crate) async fn bind_by_hand(&self, name: &str, node: &str) {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let request = Request::post(format!("/api/v1/namespaces/default/pods/{name}/binding"))
            .header("content-type", "application/json")
            .body(binding.to_string().into_bytes())
            .unwrap();
        self.kube.client().unwrap().request_text(request).await.unwrap();
    }
}
