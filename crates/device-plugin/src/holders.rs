//! Asks the kubelet who holds what, and makes it write down what it knows.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpshare_kubelet::pod_resources;
use mpshare_kubelet::socket::ConnectError;
use tokio::sync::Notify;

use crate::node::{Node, Pace};
use crate::problem::{Failures, sentence};

/// First pause between two lists that are sent only to make the kubelet write its checkpoint.
const FIRST_RESEND: Duration = Duration::from_secs(5);

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
        let answer = pod_resources::list(&mut client, timings.call).await;
        match &answer {
            Ok(_) => failures.over(),
            Err(error) => failures.failed(&sentence(error)),
        }
        let seen = node.reconcile(answer.as_ref().ok(), Instant::now());
        if resends.is_due(&seen.checkpoint_only, Instant::now()) {
            resend.notify_one();
        }
        let pause = match seen.pace {
            Pace::Pending => timings.poll_pending,
            Pace::Idle => timings.poll_idle,
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = node.granted.notified() => tokio::time::sleep(timings.poll_pending).await,
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
        let wait = if is_news { FIRST_RESEND } else { self.pause };
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
        assert!(!resends.is_due(&two, start + Duration::from_secs(4)));
        assert!(resends.is_due(&two, start + Duration::from_secs(9)));
    }
}
