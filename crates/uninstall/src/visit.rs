//! One node: waiting until our pods have gone, running the cleanup there, and reading its end.

use std::time::Duration;

use kube::Client;
use kube::api::ListParams;
use mpshare_telemetry::sentence;
use thiserror::Error;
use tokio::time::Instant;

use crate::Options;
use crate::nodes::ConcernedNode;
use crate::outcome::Outcome;
use crate::pod::CleanupPod;
use crate::pods::{Pods, SlimPod};

/// Why a node wasn't cleaned.
#[derive(Debug, Error)]
enum VisitError {
    /// Nobody would run the pod.
    #[error("its kubelet doesn't answer; hint: clean it up when it is back")]
    Down,
    /// The product still runs there.
    #[error("{} still there after {} s; hint: delete what keeps {}", .0.join(", "), .1.as_secs(), if .0.len() == 1 { "it" } else { "them" })]
    FormerPods(Vec<String>, Duration),
    /// The cleanup takes too long, or hasn't begun.
    #[error("the cleanup hasn't ended within {} s: {state}", .waited.as_secs())]
    TimedOut {
        /// For how long it was waited.
        waited: Duration,
        /// Where it is.
        state: String,
    },
    /// Somebody deleted the pod.
    #[error("the pod of the cleanup was deleted before it had ended")]
    Gone,
    /// The API refuses.
    #[error("the API server refuses")]
    Api(#[from] kube::Error),
}

/// Cleans a node, and says what became of it.
pub(crate) async fn node(client: &Client, options: &Options, node: &ConcernedNode) -> Outcome {
    match clean(client, options, node).await {
        Ok(outcome) => outcome,
        Err(error) => Outcome::Failed(sentence(&error)),
    }
}

async fn clean(
    client: &Client,
    options: &Options,
    node: &ConcernedNode,
) -> Result<Outcome, VisitError> {
    if !node.is_up {
        return Err(VisitError::Down);
    }
    let pods = Pods::of(client, &options.pod.namespace);
    former_pods_gone(&pods, options, &node.name).await?;
    let name = CleanupPod::name(&node.name);
    let deadline = options.wait_for_cleanup + Duration::from_secs(options.pod.wait);
    // One that an interrupted uninstall has left, or a person's.
    pods.delete(&name).await?;
    gone(&pods, &name, options).await?;
    pods.create(&options.pod.manifest(&node.name)).await?;
    let outcome = ended(&pods, &name, deadline, options).await;
    pods.delete(&name).await?;
    outcome
}

async fn former_pods_gone(pods: &Pods, options: &Options, node: &str) -> Result<(), VisitError> {
    let deadline = Instant::now() + options.wait_for_former_pods;
    let ours =
        ListParams::default().labels(&options.former_pods).fields(&format!("spec.nodeName={node}"));
    loop {
        let left = pods.names(&ours).await?;
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let names = left.iter().map(|name| format!("`{name}`")).collect();
            return Err(VisitError::FormerPods(names, options.wait_for_former_pods));
        }
        tokio::time::sleep(options.look_every).await;
    }
}

async fn gone(pods: &Pods, name: &str, options: &Options) -> Result<(), VisitError> {
    let deadline = Instant::now() + options.wait_for_cleanup;
    while pods.get(name).await?.is_some() {
        if Instant::now() >= deadline {
            let state = format!("an earlier pod `{name}` isn't gone");
            return Err(VisitError::TimedOut { waited: options.wait_for_cleanup, state });
        }
        tokio::time::sleep(options.look_every).await;
    }
    Ok(())
}

async fn ended(
    pods: &Pods,
    name: &str,
    waited: Duration,
    options: &Options,
) -> Result<Outcome, VisitError> {
    let deadline = Instant::now() + waited;
    loop {
        let pod = pods.get(name).await?.ok_or(VisitError::Gone)?;
        if let Some(outcome) = outcome(&pod) {
            return Ok(outcome);
        }
        if Instant::now() >= deadline {
            return Err(VisitError::TimedOut { waited, state: state(&pod) });
        }
        tokio::time::sleep(options.look_every).await;
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
