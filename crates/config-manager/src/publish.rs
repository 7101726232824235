//! Condition, annotations and Events -> API, with retries. Nothing here holds the loop up: it only leaves the
//! newest condition and a few Events behind for these futures.

mod event;
mod node;

use std::time::Duration;

use kube::Client;
use tokio::sync::{mpsc, watch};

use crate::backoff::Doubling;
use crate::condition::Condition;
use crate::inventory::Annotations;
use crate::reconcile::NodeAnnouncement;
use event::{Clerk, Verdict};
use node::NodeStatusClient;

/// Changes that follow each other this closely are published as one: a switch of the config is
/// over before anybody could read that it goes on.
const SETTLE: Duration = Duration::from_millis(300);

/// Waits after failures, with jitter.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_mins(1);

/// How often an Event is tried.
const EVENT_ATTEMPTS: usize = 5;

/// What a Node should say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeReport {
    /// Of the Node object: a new one has no condition yet.
    pub(crate) uid: String,
    pub(crate) condition: Condition,
    /// `None` while those that it has should stay.
    pub(crate) annotations: Option<Annotations>,
    /// The annotations that it was seen with, so that an edit of somebody else's is set right.
    pub(crate) seen: Annotations,
}

/// Keeps the Node's condition and annotations as they should be. Ends with the sender.
pub(crate) async fn conditions(
    client: Client,
    node: String,
    mut wanted: watch::Receiver<Option<NodeReport>>,
) {
    let mut status = NodeStatusClient::new(client, node);
    let mut retry = Retry::new("condition and annotations");
    while wanted.changed().await.is_ok() {
        tokio::time::sleep(SETTLE).await;
        loop {
            let target = wanted.borrow_and_update().clone();
            let Some(target) = target else { break };
            match status.publish(&target).await {
                Ok(()) => {
                    retry.succeeded();
                    break;
                }
                Err(error) => retry.failed(&error).await,
            }
        }
    }
}

/// Creates Events for announcements. Ends with the sender.
pub(crate) async fn events(
    client: Client,
    node: String,
    mut announcements: mpsc::Receiver<NodeAnnouncement>,
) {
    let mut clerk = Clerk::new(client, node);
    let mut retry = Retry::new("Event");
    while let Some((uid, announcement)) = announcements.recv().await {
        if clerk.judge(&announcement, tokio::time::Instant::now()) == Verdict::Drop {
            continue;
        }
        for _ in 0..EVENT_ATTEMPTS {
            match clerk.create(&uid, &announcement).await {
                Ok(()) => {
                    retry.succeeded();
                    break;
                }
                Err(error) => retry.failed(&error).await,
            }
        }
    }
}

/// Waits after failures, and one line of the log for all of them.
struct Retry {
    what: &'static str,
    failures: u64,
    waits: Doubling,
}

impl Retry {
    fn new(what: &'static str) -> Self {
        Self { what, failures: 0, waits: Doubling::new(FIRST_RETRY, LONGEST_RETRY) }
    }

    async fn failed(&mut self, error: &kube::Error) {
        self.failures += 1;
        if self.failures == 1 {
            tracing::warn!(what = self.what, %error, "can't publish, retrying");
        }
        tokio::time::sleep(self.waits.wait()).await;
    }

    fn succeeded(&mut self) {
        if self.failures > 0 {
            *self = Self::new(self.what);
        }
    }
}
