//! Condition, annotations and Events -> API, with retries. Nothing here holds the loop up: it only leaves the
//! newest condition and a few Events behind for these futures.

mod contest;
mod event;
mod node;
mod pods;

use std::time::Duration;

use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::announcement::Announcement;
use crate::backoff::Doubling;
use crate::condition::Condition;
use crate::inventory::Annotations;
use crate::pod_events::PodAnnouncement;
use crate::published::Sight;
use crate::reconcile::NodeAnnouncement;
use contest::{Answer, Contest};
use event::{Clerk, Limiter, Subject, Verdict};
use node::NodeStatusClient;
pub(crate) use pods::corrections;

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
    /// What the Node had when it changed last. It may be older than our own last write.
    pub(crate) sight: Option<Sight>,
}

impl NodeReport {
    /// What the Node had if that is something else, in words.
    fn other(&self) -> Option<String> {
        let sight = self.sight.as_ref()?;
        match &sight.condition {
            Some(seen) if seen.says(&self.condition) => {}
            Some(seen) => return Some(format!("`{}` with reason `{}`", seen.status, seen.reason)),
            None => return Some("no condition".to_owned()),
        }
        let differs = self.annotations.as_ref().is_some_and(|it| *it != sight.annotations);
        differs.then(|| "other annotations".to_owned())
    }

    fn wants_the_same_as(&self, other: &Self) -> bool {
        (&self.uid, &self.condition, &self.annotations)
            == (&other.uid, &other.condition, &other.annotations)
    }
}

/// Keeps the Node's condition and annotations as they should be, whoever changes them. Ends with
/// the sender.
///
/// What we have to say is written at once. What somebody else wrote over it is corrected after a
/// wait, see [`Contest`], and only if the Node has it still: a sight of the Node may be older than
/// our own last write.
pub(crate) async fn conditions(
    client: Client,
    node: String,
    mut wanted: watch::Receiver<Option<NodeReport>>,
) {
    let mut status = NodeStatusClient::new(client, node);
    let mut retry = Retry::new("condition and annotations");
    let mut contest = Contest::new();
    let mut said: Option<NodeReport> = None;
    loop {
        tokio::select! {
            changed = wanted.changed() => {
                if changed.is_err() {
                    return;
                }
                tokio::time::sleep(SETTLE).await;
            }
            () = contest.due() => {}
        }
        loop {
            let target = wanted.borrow_and_update().clone();
            let Some(target) = target else { break };
            let is_said = said.as_ref().is_some_and(|said| said.wants_the_same_as(&target));
            if is_said {
                if contest.judge(target.other(), Instant::now()) == Answer::Leave {
                    break;
                }
                status.forget();
            }
            match status.publish(&target).await {
                Ok(()) => {
                    retry.succeeded();
                    if is_said {
                        contest.corrected(Instant::now());
                    }
                    said = Some(target);
                    break;
                }
                Err(error) => retry.failed(&error).await,
            }
        }
    }
}

/// Creates Events on the Node. Ends with the sender.
pub(crate) async fn events(
    client: Client,
    node: String,
    mut announcements: mpsc::Receiver<NodeAnnouncement>,
) {
    let mut clerk = Clerk::new(client, node);
    let mut limiter = Limiter::new(Instant::now().into_std());
    let mut retry = Retry::new("Event");
    while let Some((uid, announcement)) = announcements.recv().await {
        let now = Instant::now().into_std();
        if limiter.judge(&announcement.message, now) == Verdict::Keep {
            create(&mut clerk, &mut retry, &Subject::Node(uid), &announcement).await;
        }
    }
}

/// Creates Events on pods, which were limited when they were found. Ends with the sender.
pub(crate) async fn pod_events(
    client: Client,
    node: String,
    mut announcements: mpsc::Receiver<PodAnnouncement>,
) {
    let mut clerk = Clerk::new(client, node);
    let mut retry = Retry::new("Event on a pod");
    while let Some(PodAnnouncement { name, uid, announcement }) = announcements.recv().await {
        create(&mut clerk, &mut retry, &Subject::Pod { name, uid }, &announcement).await;
    }
}

async fn create(
    clerk: &mut Clerk,
    retry: &mut Retry,
    subject: &Subject,
    announcement: &Announcement,
) {
    for _ in 0..EVENT_ATTEMPTS {
        match clerk.create(subject, announcement).await {
            Ok(()) => return retry.succeeded(),
            // Such as of a namespace that is going: the answer stays the same.
            Err(kube::Error::Api(status)) if is_final(status.code) => {
                tracing::warn!(?subject, error = status.message, "an Event was refused");
                return;
            }
            Err(error) => retry.failed(&error).await,
        }
    }
}

/// Whether a request that was answered so isn't worth repeating.
const fn is_final(code: u16) -> bool {
    matches!(code, 400..=499) && !matches!(code, 401 | 408 | 429)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_final_and_an_answer_that_may_change_is_not() {
        assert!([400, 403, 404, 409, 422].into_iter().all(is_final));
        assert!(![401, 408, 429, 500, 503].into_iter().any(is_final));
    }
}
