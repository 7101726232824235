//! One node: waiting until our pods have gone, running the cleanup there, and reading its end.
//!
//! All that has one deadline, that of the whole uninstall. Requests that fail are repeated until then.

use std::time::Duration;

use kube::Client;
use kube::api::ListParams;
use mpshare_telemetry::sentence;
use thiserror::Error;

use crate::Options;
use crate::nodes::ConcernedNode;
use crate::outcome::Outcome;
use crate::patience::{AskError, Patience};
use crate::pod::CleanupPod;
use crate::pods::{Pods, SlimPod};

/// For what follows the visit, whose own time may be over.
const AFTERWARDS: Duration = Duration::from_secs(10);

/// Why a node wasn't cleaned.
#[derive(Debug, Error)]
enum VisitError {
    /// Nobody would run the pod.
    #[error("its kubelet doesn't answer; hint: clean it up when it is back")]
    Down,
    /// The time was over before the node's turn.
    #[error("the {} s for all nodes were over before its turn", .0.as_secs())]
    NotReached(Duration),
    /// The product still runs there.
    #[error("{} still there after {} s; hint: delete what keeps {}", .0.join(", "), .1.as_secs(), if .0.len() == 1 { "it" } else { "them" })]
    FormerPods(Vec<String>, Duration),
    /// The cleanup takes too long, or hasn't begun.
    #[error("the cleanup hasn't ended within {} s: {state}", .within.as_secs())]
    TimedOut {
        /// The time for all nodes.
        within: Duration,
        /// Where it is.
        state: String,
    },
    /// Somebody deleted the pod.
    #[error("the pod of the cleanup was deleted before it had ended")]
    Gone,
    /// No answer in time.
    #[error(transparent)]
    Api(#[from] AskError),
}

/// Cleans a node, and says what became of it.
pub(crate) async fn node(
    client: &Client,
    options: &Options,
    patience: &Patience,
    node: &ConcernedNode,
) -> Outcome {
    let pods = Pods::of(client, &options.pod.namespace);
    match (Visit { pods, options, patience }).clean(node).await {
        Ok(outcome) => outcome,
        Err(error) => Outcome::Failed(sentence(&error)),
    }
}

/// One node's visit.
struct Visit<'a> {
    pods: Pods,
    options: &'a Options,
    patience: &'a Patience,
}

impl Visit<'_> {
    async fn clean(&self, node: &ConcernedNode) -> Result<Outcome, VisitError> {
        if !node.is_up {
            return Err(VisitError::Down);
        }
        if self.patience.is_over() {
            return Err(VisitError::NotReached(self.options.time()));
        }
        self.former_pods_gone(&node.name).await?;
        let name = CleanupPod::name(&node.name);
        // One that an interrupted uninstall has left, or a person's.
        self.patience.ask(|| self.pods.delete(&name)).await?;
        self.gone(&name).await?;
        let outcome = self.run(&node.name, &name).await;
        // What the cleanup said stands, also when its pod does.
        let afterwards = Patience::lasting(AFTERWARDS, self.options.look_every);
        if let Err(error) = afterwards.ask(|| self.pods.delete(&name)).await {
            tracing::warn!(pod = name, error = sentence(&error), "the cleanup's pod stays");
        }
        outcome
    }

    async fn run(&self, node: &str, name: &str) -> Result<Outcome, VisitError> {
        let manifest = self.options.pod.manifest(node);
        self.patience.ask(|| self.pods.create(&manifest)).await?;
        self.ended(name).await
    }

    async fn former_pods_gone(&self, node: &str) -> Result<(), VisitError> {
        let ours = ListParams::default()
            .labels(&self.options.former_pods)
            .fields(&format!("spec.nodeName={node}"));
        loop {
            let left = self.patience.ask(|| self.pods.names(&ours)).await?;
            if left.is_empty() {
                return Ok(());
            }
            if self.patience.is_over() {
                let names = left.iter().map(|name| format!("`{name}`")).collect();
                return Err(VisitError::FormerPods(names, self.options.time()));
            }
            self.patience.pause().await;
        }
    }

    async fn gone(&self, name: &str) -> Result<(), VisitError> {
        while self.patience.ask(|| self.pods.get(name)).await?.is_some() {
            if self.patience.is_over() {
                return Err(self.timed_out(format!("an earlier pod `{name}` isn't gone")));
            }
            self.patience.pause().await;
        }
        Ok(())
    }

    async fn ended(&self, name: &str) -> Result<Outcome, VisitError> {
        loop {
            let pod = self.patience.ask(|| self.pods.get(name)).await?.ok_or(VisitError::Gone)?;
            if let Some(outcome) = outcome(&pod) {
                return Ok(outcome);
            }
            if self.patience.is_over() {
                return Err(self.timed_out(state(&pod)));
            }
            self.patience.pause().await;
        }
    }

    fn timed_out(&self, state: String) -> VisitError {
        VisitError::TimedOut { within: self.options.time(), state }
    }
}

/// Once the container has ended, or the pod has without it (evicted, or refused by its kubelet).
fn outcome(pod: &SlimPod) -> Option<Outcome> {
    let status = &pod.status;
    let end = status.container().and_then(|state| state.terminated.as_ref());
    if let Some(end) = end {
        return Some(Outcome::of(end.exit_code, end.message.clone().unwrap_or_default()));
    }
    let has_failed = status.phase.as_deref() == Some("Failed");
    has_failed.then(|| {
        let words = [status.reason.as_deref(), status.message.as_deref()];
        let words: Vec<&str> = words.into_iter().flatten().collect();
        Outcome::Failed(format!("the pod of the cleanup failed: {}", words.join(": ")))
    })
}

/// Where a pod is that hasn't ended.
fn state(pod: &SlimPod) -> String {
    let waiting = pod.status.container().and_then(|state| state.waiting.as_ref());
    if let Some(waiting) = waiting {
        let words = [waiting.reason.as_deref(), waiting.message.as_deref()];
        return words.into_iter().flatten().collect::<Vec<_>>().join(": ");
    }
    let phase = pod.status.phase.as_deref();
    format!("its pod is {}", phase.unwrap_or("not yet seen by the kubelet"))
}
