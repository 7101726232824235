//! A stand-in for kube-scheduler that knows one node: its own few rules, then the extender, as far
//! as facts/kubernetes.md 6.4 to 6.8 describe it.
//!
//! With one node there is nothing to score, so that the real one wouldn't ask for scores either
//! (6.6). There is no preemption. Pauses are shorter than the real ones.
#![expect(
    clippy::indexing_slicing,
    reason = "indexing a JSON value yields null, it does not panic"
)]

mod extender;
mod fit;
mod told;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::fakekube::{Change, ChangeKind, FakeKube};

pub(super) use extender::Extender;
pub use extender::{CountedBy, ManagedResource};
use told::Failure;

/// The pause after the first failure (kube-scheduler: 1 s), doubled with each.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest one (kube-scheduler: 10 s).
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// When a pod that didn't fit is looked at again although nothing happened (kube-scheduler: 5 min).
const FLUSH: Duration = Duration::from_secs(5);

/// Schedules pods until it is dropped with its runtime.
pub(super) async fn run(kube: Arc<FakeKube>, node: String, extender: Option<Extender>) {
    let mut changes = kube.changes();
    let mut scheduler = Scheduler { kube, node, extender, waiting: BTreeMap::new() };
    loop {
        let next = scheduler.cycle().await;
        // Until something has happened that can matter, or a pause is over.
        loop {
            tokio::select! {
                change = changes.next() => {
                    let Some(change) = change else { return };
                    if scheduler.matters(&change) {
                        break;
                    }
                }
                () = tokio::time::sleep_until(next) => break,
            }
        }
    }
}

struct Scheduler {
    kube: Arc<FakeKube>,
    node: String,
    extender: Option<Extender>,
    /// Pods that failed, by UID.
    waiting: BTreeMap<String, Waiting>,
}

/// How long a pod that failed is left alone.
struct Waiting {
    pause: Duration,
    /// Not before this.
    pause_ends: Instant,
    /// Without a reason not before this.
    next: Instant,
}

impl Scheduler {
    /// Whether a change can make room, or is a new pod; pods that wait are woken then.
    fn matters(&mut self, change: &Change) -> bool {
        let is_pod = change.resource == "pods";
        if !is_pod && change.resource != "nodes" {
            return false;
        }
        let is_on_a_node = change.object["spec"]["nodeName"].is_string();
        if !is_pod || is_on_a_node {
            for waiting in self.waiting.values_mut() {
                waiting.next = waiting.pause_ends;
            }
            return true;
        }
        change.kind == ChangeKind::Added
    }

    /// Tries all pods that may be tried; when to do so again at the latest.
    async fn cycle(&mut self) -> Instant {
        let pods = self.kube.list("pods");
        let pending: Vec<&Value> = pods.iter().filter(|pod| is_pending(pod)).collect();
        self.waiting.retain(|uid, _| pending.iter().any(|pod| pod["metadata"]["uid"] == **uid));
        for pod in pending {
            let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
            if self.waiting.get(uid).is_some_and(|waiting| Instant::now() < waiting.next) {
                continue;
            }
            match self.schedule(pod).await {
                Ok(()) => drop(self.waiting.remove(uid)),
                Err(failure) => {
                    self.wait(uid, &failure);
                    if let Err(error) = self.tell(pod, &failure).await {
                        tracing::warn!(%error, "a pod can't be told that it has to wait");
                    }
                }
            }
        }
        let next = self.waiting.values().map(|waiting| waiting.next).min();
        next.unwrap_or_else(|| Instant::now() + FLUSH)
    }

    async fn schedule(&self, pod: &Value) -> Result<(), Failure> {
        let node = self.kube.get("nodes", "", &self.node);
        let node = node.ok_or_else(|| Failure::unschedulable("0/0 nodes are available."))?;
        let ignored = self.extender.as_ref().map(Extender::ignored).unwrap_or_default();
        // The pods of this moment: one of the same cycle may have been bound.
        let pods = self.kube.list("pods");
        fit::fits(pod, &node, &pods, &ignored).map_err(Failure::unschedulable)?;
        let interested = self.extender.as_ref().filter(|extender| extender.is_interested(pod));
        let Some(extender) = interested else {
            return self.bind(pod).await.map_err(|error| Failure::error(format!("{error:#}")));
        };
        extender.filter(pod, &self.node).await?;
        extender.bind(pod, &self.node).await
    }

    fn wait(&mut self, uid: &str, failure: &Failure) {
        let now = Instant::now();
        let before = self.waiting.get(uid).map(|waiting| waiting.pause);
        let pause = before.map_or(FIRST_PAUSE, |pause| (pause * 2).min(LONGEST_PAUSE));
        let pause_ends = now + pause;
        // An error is no answer: it is tried again by itself.
        let next = if failure.is_error() { pause_ends } else { now + FLUSH };
        self.waiting.insert(uid.to_owned(), Waiting { pause, pause_ends, next });
    }

    /// What the default binder does.
    async fn bind(&self, pod: &Value) -> anyhow::Result<()> {
        let (namespace, name) = key(pod);
        let pods: kube::Api<Pod> = kube::Api::namespaced(self.kube.client()?, namespace);
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": pod["metadata"]["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.node},
        });
        let parameters = kube::api::PostParams::default();
        let bound: Value = pods.create_subresource("binding", name, &parameters, &binding).await?;
        drop(bound);
        Ok(())
    }

    /// Writes why a pod waits, unless it was written already.
    async fn tell(&self, pod: &Value, failure: &Failure) -> anyhow::Result<()> {
        let (namespace, name) = key(pod);
        let Some(pod) = self.kube.get("pods", namespace, name) else { return Ok(()) };
        if failure.is_told(&pod) {
            return Ok(());
        }
        self.kube.patch_status("pods", namespace, name, failure.status()).await?;
        self.kube.create(failure.event(&pod)).await?;
        Ok(())
    }
}

fn is_pending(pod: &Value) -> bool {
    pod["spec"]["nodeName"].is_null() && pod["metadata"]["deletionTimestamp"].is_null()
}

fn key(pod: &Value) -> (&str, &str) {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
    (text("namespace"), text("name"))
}
