//! A subscription to the store's changes for code in the same process.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch::Receiver;

use super::cluster::Cluster;

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// It was created.
    Added,
    /// It was updated.
    Modified,
    /// It is gone.
    Deleted,
}

/// One change of one object.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// What happened.
    pub kind: ChangeKind,
    /// The resource, such as `pods` or `daemonsets.apps`.
    pub resource: String,
    /// The object after the change; its last state when it was deleted.
    pub object: Value,
    /// The object before the change.
    pub before: Option<Value>,
}

/// The changes after a moment, in order.
pub struct Changes {
    cluster: Arc<Cluster>,
    place: u64,
    pending: std::collections::VecDeque<Change>,
    revisions: Receiver<u64>,
}

impl Changes {
    pub(crate) fn new(cluster: Arc<Cluster>) -> Self {
        Self {
            place: cluster.read(super::store::Store::revision),
            revisions: cluster.revisions(),
            pending: std::collections::VecDeque::new(),
            cluster,
        }
    }

    /// The next change; waits for one. `None` when changes were compacted before they were read.
    pub async fn next(&mut self) -> Option<Change> {
        loop {
            if let Some(change) = self.pending.pop_front() {
                return Some(change);
            }
            self.revisions.borrow_and_update();
            let changes = self.cluster.read(|store| store.since(self.place)).ok()?;
            for change in changes {
                self.place = change.revision;
                self.pending.push_back(public(&change));
            }
            if self.pending.is_empty() {
                self.revisions.changed().await.ok()?;
            }
        }
    }
}

fn public(change: &super::store::Change) -> Change {
    Change {
        kind: match (&change.before, change.removed) {
            (_, true) => ChangeKind::Deleted,
            (None, false) => ChangeKind::Added,
            (Some(_), false) => ChangeKind::Modified,
        },
        resource: change.key.resource.clone(),
        object: change.after.value().clone(),
        before: change.before.as_ref().map(|object| object.value().clone()),
    }
}
