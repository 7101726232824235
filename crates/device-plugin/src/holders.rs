//! Asks the kubelet who holds what, and makes it write down what it knows.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpshare_kubelet::pod_resources;
use mpshare_kubelet::socket::ConnectError;
use mpshare_telemetry::sentence;
use tokio::sync::Notify;

use crate::ledger::Listing;
use crate::node::{Node, Pace};
use mpshare_telemetry::Failures;

/// Least time between two lists that are sent only to make the kubelet write its checkpoint.
const NEWS_RESEND: Duration = Duration::from_secs(1);

/// First pause before the second one for the same ids.
const FIRST_RESEND: Duration = Duration::from_secs(5);

/// How soon the checkpoint that the kubelet writes then is read.
const AFTER_RESEND: Duration = Duration::from_millis(100);

/// How soon after a grant it can be seen who holds it.
const AFTER_NEWS: Duration = Duration::from_millis(300);

/// Longest pause between them: a container that only the checkpoint names may be a running init
/// container, for as long as it likes.
const LONGEST_RESEND: Duration = Duration::from_mins(1);

/// Follows the holders until the end of the role; `resend` is told to send the device lists
/// again.
pub(crate) async fn follow(node: Arc<Node>, resend: Arc<Notify>) -> Result<(), ConnectError> {
    let timings = node.options().timings;
    let mut client = pod_resources::lister(&node.options().pod_resources_socket)?;
    let mut failures = Failures::new("holders of shares unknown, all count as held");
    let mut resends = Resends::default();
    loop {
        let asked = Instant::now();
        let answer = pod_resources::list(&mut client, timings.call).await;
        match &answer {
            Ok(_) => failures.over(),
            Err(error) => failures.failed(&sentence(error)),
        }
        let listing = answer.as_ref().ok().map(|held| Listing { held, asked });
        let seen = node.reconcile(listing, Instant::now());
        let pause = if resends.is_due(&seen.checkpoint_only, Instant::now()) {
            resend.notify_one();
            AFTER_RESEND
        } else if seen.pace == Pace::Pending {
            timings.poll_pending
        } else {
            timings.poll_idle
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = node.look.notified() => tokio::time::sleep(AFTER_NEWS).await,
        }
    }
}

/// When to send a list that says nothing new: the kubelet writes its checkpoint on every list, and
/// at no time because a pod has ended (facts/kubernetes.md 1.8).
#[derive(Debug, Default)]
struct Resends {
    ids: BTreeSet<String>,
    pause: Duration,
    last: Option<Instant>,
}

impl Resends {
    fn is_due(&mut self, ids: &BTreeSet<String>, now: Instant) -> bool {
        let is_news = !ids.is_subset(&self.ids);
        self.ids.clone_from(ids);
        if ids.is_empty() {
            return false;
        }
        if is_news {
            self.pause = FIRST_RESEND;
        }
        // Rate limited also for news: a writing kubelet syncs its disk.
        let wait = if is_news { NEWS_RESEND } else { self.pause };
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < wait) {
            return false;
        }
        self.pause = (self.pause * 2).min(LONGEST_RESEND);
        self.last = Some(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sent_again_at_growing_pauses_while_only_the_checkpoint_has_an_id() {
        let mut resends = Resends::default();
        let start = Instant::now();
        let one: BTreeSet<String> = ["a".to_owned()].into();
        assert!(!resends.is_due(&BTreeSet::new(), start));
        let due: Vec<u64> = (0..200)
            .filter(|second| resends.is_due(&one, start + Duration::from_secs(*second)))
            .collect();
        assert_eq!(due, [0, 10, 30, 70, 130, 190]);
    }

    #[test]
    fn a_new_id_begins_again_at_the_shortest_pause() {
        let mut resends = Resends::default();
        let start = Instant::now();
        let one: BTreeSet<String> = ["a".to_owned()].into();
        let two: BTreeSet<String> = ["a".to_owned(), "b".to_owned()].into();
        assert!(resends.is_due(&one, start));
        assert!(!resends.is_due(&two, start + Duration::from_millis(900)));
        let three: BTreeSet<String> = ["a", "b", "c"].map(ToOwned::to_owned).into();
        assert!(resends.is_due(&three, start + Duration::from_millis(1100)));
    }
}
