//! The kubelet's sync loop: one task that handles all pod events, one at a time. A plugin that
//! hangs in `Allocate` holds it up, and with it every other pod (`facts/kubernetes.md` 1.6).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::allocation::{Occasion, allocate_pod};
use super::node::{Deletion, Node, PodRecord};
use super::pod::PodSpec;
use super::worker::{Stop, run_pod};

/// An event for the sync loop.
pub(super) enum Command {
    /// A pod was bound to the node.
    Add { uid: String },
    /// A pod was deleted with this much time for its containers.
    Delete { uid: String, grace: Duration },
    /// A pod's API object has vanished.
    Forget { uid: String, grace: Duration },
}

/// Where events wait, also while no kubelet process is up.
pub(super) type Inbox = Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<Command>>>;

/// The sync loop of kubelet process `session`: admits all known pods again, then handles events
/// until nobody can send any more.
pub(super) async fn sync_loop(node: Arc<Node>, inbox: Inbox, session: u64) {
    readmit(&node, session).await;
    let mut inbox = inbox.lock().await;
    while let Some(command) = inbox.recv().await {
        match command {
            Command::Add { uid } => admit(&node, &uid).await,
            Command::Delete { uid, grace } => delete(&node, &uid, grace),
            Command::Forget { uid, grace } => forget(&node, &uid, grace),
        }
    }
}

/// All pods that haven't ended come as one batch, oldest first.
async fn readmit(node: &Arc<Node>, session: u64) {
    let mut pods: Vec<(u64, String, bool)> = node.read(|state| {
        let live = state.pods.iter().filter(|(_, record)| record.is_active());
        live.map(|(uid, record)| (record.sequence, uid.clone(), record.worker.is_some())).collect()
    });
    pods.sort();
    for (_, uid, has_worker) in pods {
        if !has_worker {
            admit(node, &uid).await;
        } else if let Some(pod) = spec(node, &uid)
            && let Err(error) = allocate_pod(node, &pod, Occasion::Readmission).await
        {
            reject_allocation(node, &uid, &error.to_string());
            stop(node, &uid, node.options.min_grace);
        }
    }
    node.change(|state| state.serving = Some(session));
}

async fn admit(node: &Arc<Node>, uid: &str) {
    let Some(pod) = spec(node, uid) else { return };
    let arrived = node.change(|state| match state.pods.get_mut(uid) {
        Some(record) if !record.status.gone => {
            record.arrived = true;
            true
        }
        _ => false,
    });
    if !arrived {
        return;
    }
    if let Err(error) = allocate_pod(node, &pod, Occasion::Admission).await {
        return reject_allocation(node, uid, &error.to_string());
    }
    // Only now: a pod that fails here has its devices allocated, and nobody tells the plugin.
    if let Some(reason) = &pod.rejected_by_predicates {
        let message = format!("Pod was rejected: Node didn't have enough resource: {reason}");
        return node.reject(uid, reason, &message);
    }
    node.change_status(uid, |status| status.admitted = true);
    start_worker(node, pod);
}

fn spec(node: &Node, uid: &str) -> Option<PodSpec> {
    node.read(|state| state.pods.get(uid).map(|record| record.spec.clone()))
}

fn reject_allocation(node: &Node, uid: &str, error: &str) {
    let message = format!("Pod was rejected: Allocate failed due to {error}, which is unexpected");
    node.reject(uid, "UnexpectedAdmissionError", &message);
}

fn start_worker(node: &Arc<Node>, pod: PodSpec) {
    let sender = watch::Sender::new(None);
    let stop = sender.subscribe();
    node.change(|state| {
        if let Some(record) = state.pods.get_mut(&pod.uid) {
            record.worker = Some(sender);
        }
    });
    let node = Arc::clone(node);
    let workers = node.workers.clone();
    workers.spawn(async move {
        let uid = pod.uid.clone();
        run_pod(Arc::clone(&node), Arc::new(pod), stop).await;
        if node.read(|state| {
            state.pods.get(&uid).is_some_and(|record| record.deletion != Deletion::None)
        }) {
            node.change_status(&uid, |status| status.gone = true);
        }
    });
}

/// A deletion with time for the containers: the pod stays active until they have stopped.
fn delete(node: &Node, uid: &str, grace: Duration) {
    let stopped = node.change(|state| {
        let record = state.pods.get_mut(uid)?;
        if record.deletion == Deletion::None {
            record.deletion = Deletion::Graceful;
        }
        let never_ran = record.worker.is_none();
        record.terminated |= never_ran;
        Some(record.terminated)
    });
    stop(node, uid, grace);
    if stopped == Some(true) {
        node.change_status(uid, |status| status.gone = true);
    }
}

/// A forced deletion: the kubelet doesn't know the pod any more, so its devices are free for the
/// next one, while its containers still have some time to run.
fn forget(node: &Node, uid: &str, grace: Duration) {
    node.change(|state| {
        if let Some(record) = state.pods.get_mut(uid) {
            record.deletion = Deletion::Forced;
        }
    });
    node.change_status(uid, |status| status.gone = true);
    stop(node, uid, grace.max(node.options.min_grace));
}

fn stop(node: &Node, uid: &str, grace: Duration) {
    let tell = |record: &PodRecord| {
        if let Some(worker) = &record.worker {
            worker.send_replace(Some(Stop { grace }));
        }
    };
    node.read(|state| state.pods.get(uid).map(tell));
}
