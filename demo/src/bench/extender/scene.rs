//! A cluster in memory, and the real extender as a process beside it.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use mpshare_testkit::fakekube::{FakeKube, Settings};
use mpshare_testkit::simnode::built;
use serde_json::{Value, json};

use super::http::Connection;
use crate::story::PATIENCE;

/// GPUs of a node.
const GPUS: usize = 8;

/// GiB of a GPU.
const UNITS: usize = 15;

/// API server and extender.
pub(super) struct Scene {
    pub(super) kube: FakeKube,
    pub(super) nodes: Vec<String>,
    /// Where the extender listens.
    pub(super) address: String,
    child: Child,
    _dir: tempfile::TempDir,
}

impl Scene {
    /// A cluster of so many nodes, with so many pods on them; the extender knows all of them.
    pub(super) async fn start(nodes: usize, pods: usize) -> Result<Self> {
        let settings = Settings { history: 100_000, ..Settings::default() };
        let kube = FakeKube::start_with(settings).await?;
        let names: Vec<String> = (0..nodes).map(node_name).collect();
        for (at, name) in names.iter().enumerate() {
            kube.create(node(at, name)).await?;
        }
        for pod in 0..pods {
            kube.create(bound_pod(pod, &names)?).await?;
        }
        let dir = tempfile::tempdir()?;
        let kubeconfig = kube.kubeconfig(dir.path())?;
        let address = format!("127.0.0.1:{}", free_port()?);
        let program = built().join("mpshare-scheduler-extender");
        // It ends with this process, however that ends.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(&program)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--listen", &address])
            .stdin(Stdio::null())
            .spawn()
            .context("can't run setpriv (util-linux)")?;
        let scene = Self { kube, nodes: names, address, child, _dir: dir };
        scene.await_ready().await?;
        Ok(scene)
    }

    /// The extender's process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A kept connection to the extender.
    pub(super) async fn connect(&self) -> Result<Connection> {
        Connection::to(&self.address).await
    }

    /// Creates pods that wait and returns them, once the extender has been told of them.
    pub(super) async fn waiting_pods(&self, prefix: &str, count: usize) -> Result<Vec<Value>> {
        let mut pods = Vec::new();
        for at in 0..count {
            pods.push(self.kube.create(pod(&format!("{prefix}-{at}"), 1)).await?);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(pods)
    }

    async fn await_ready(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let asked = async { self.connect().await?.get("/readyz").await };
            match asked.await {
                Ok(_) => return Ok(()),
                Err(error) => ensure!(Instant::now() < deadline, "the extender: {error:#}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A pod with one container, of the size that a pod has on a real API server.
pub(super) fn pod(name: &str, units: usize) -> Value {
    let limits = json!({"aliyun.com/gpu-mem": units.to_string()});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "default",
            "labels": {"app": "tf-mnist", "batch.kubernetes.io/controller-uid": "2f1d9a54-6d5e-4a4f-9a2a-0a5d1e1c6b11",
                "batch.kubernetes.io/job-name": "tensorflow-mnist-multigpu", "controller-uid": "2f1d9a54-6d5e-4a4f-9a2a-0a5d1e1c6b11"},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "tensorflow-mnist-multigpu",
                "uid": "2f1d9a54-6d5e-4a4f-9a2a-0a5d1e1c6b11", "controller": true, "blockOwnerDeletion": true}],
        },
        "spec": {
            "containers": [{
                "name": "tensorflow-mnist", "image": "registry.cn-beijing.aliyuncs.com/ai-samples/gpushare-sample:tensorflow-1.5",
                "command": ["python", "tensorflow-sample-code/tfjob/docker/mnist/main.py", "--max_steps=100000", "--data_dir=tensorflow-sample-code/data"],
                "resources": {"limits": limits, "requests": limits},
                "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}],
                "volumeMounts": [{"name": "kube-api-access-abcde", "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent",
                "workingDir": "/root",
            }],
            "volumes": [{"name": "kube-api-access-abcde", "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            ]}}],
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default", "serviceAccount": "default", "securityContext": {}, "schedulerName": "default-scheduler",
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ],
            "priority": 0, "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority",
        },
    })
}

/// A name as ACK gives them.
pub(in crate::bench) fn node_name(at: usize) -> String {
    format!("cn-hangzhou.192.168.{}.{}", at / 250, 1 + at % 250)
}

pub(in crate::bench) fn node(at: usize, name: &str) -> Value {
    let gpus = (0..GPUS).map(|index| {
        json!({
            "uuid": gpu(at * GPUS + index), "index": index, "model": "Tesla T4",
            "memoryMiB": UNITS * 1024, "unitMiB": 1024, "units": UNITS, "state": "Ready",
            "computeCapability": "7.5", "driver": "535.161.08",
        })
    });
    let gpus = Value::Array(gpus.collect()).to_string();
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "annotations": {"mpshare.io/gpus": gpus}},
    })
}

fn gpu(number: usize) -> String {
    format!("GPU-{number:08x}-5d6a-4b7e-9c8f-{number:012x}")
}

/// The pods are dealt out to the GPUs one after the other, 2 to 4 GiB each.
fn bound_pod(at: usize, nodes: &[String]) -> Result<Value> {
    let units = 2 + at % 3;
    let card = at % (nodes.len() * GPUS);
    let node = nodes.get(card / GPUS).context("no such node")?;
    let mut pod = pod(&format!("held-{at}"), units);
    let place = json!({"tensorflow-mnist": {gpu(card): units}}).to_string();
    if let Some(metadata) = pod.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        metadata.insert("annotations".to_owned(), json!({"mpshare.io/allocation": place}));
    }
    if let Some(spec) = pod.pointer_mut("/spec").and_then(Value::as_object_mut) {
        spec.insert("nodeName".to_owned(), json!(node));
    }
    Ok(pod)
}

/// A port that nobody listens on.
pub(in crate::bench) fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
