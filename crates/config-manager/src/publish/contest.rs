//! When to write the condition again that somebody else has changed: soon, and ever later while it
//! goes on, so that two writers that disagree don't keep the API server busy.

use std::time::Duration;

use kube::runtime::utils::Backoff as _;
use mpshare_telemetry::Failures;
use tokio::time::Instant;

use crate::backoff::Doubling;

/// Waits before a correction. A sight that is older than our own write is over by then.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_mins(5);

/// After so long without a correction the waits begin with the first again.
const CALM: Duration = LONGEST.saturating_mul(2);

/// What to do about what the Node was seen with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// Nothing now.
    Leave,
    /// Write.
    Correct,
}

/// The dispute with whoever else writes the condition.
#[derive(Debug)]
pub(super) struct Contest {
    /// What was seen instead of ours, and when to correct it.
    pending: Option<(String, Instant)>,
    waits: Doubling,
    corrected: Option<Instant>,
    others: Failures,
}

impl Contest {
    pub(super) const fn new() -> Self {
        Self {
            pending: None,
            waits: Doubling::new(FIRST, LONGEST),
            corrected: None,
            others: Failures::new("somebody else changed this node's condition, written again"),
        }
    }

    /// The Node was seen with what we said, or with something `other`.
    pub(super) fn judge(&mut self, other: Option<String>, now: Instant) -> Answer {
        let Some(other) = other else {
            self.pending = None;
            return Answer::Leave;
        };
        if self.corrected.is_some_and(|at| now.duration_since(at) >= CALM) {
            self.corrected = None;
            self.waits.reset();
        }
        // A difference that goes by itself makes no later wait longer.
        let due = self.pending.take().map_or_else(|| now + self.waits.clone().wait(), |it| it.1);
        self.pending = Some((other, due));
        if now >= due { Answer::Correct } else { Answer::Leave }
    }

    /// It was written again.
    pub(super) fn corrected(&mut self, now: Instant) {
        if let Some((other, _)) = self.pending.take() {
            self.others.failed(&other);
        }
        self.corrected = Some(now);
        self.waits.wait();
    }

    /// Waits until there is something to correct.
    pub(super) async fn due(&self) {
        match &self.pending {
            Some((_, due)) => tokio::time::sleep_until(*due).await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differs(contest: &mut Contest, now: Instant) -> Answer {
        contest.judge(Some("other".to_owned()), now)
    }

    /// When the next correction is made, after its wait.
    fn correct(contest: &mut Contest, now: Instant) -> Instant {
        assert_eq!(differs(contest, now), Answer::Leave);
        let due = contest.pending.as_ref().unwrap().1;
        assert_eq!(differs(contest, due), Answer::Correct);
        contest.corrected(due);
        due
    }

    #[test]
    fn corrections_come_ever_later_and_soon_again_after_a_calm() {
        let mut contest = Contest::new();
        let start = Instant::now();
        let mut now = start;
        for _ in 0..20 {
            now = correct(&mut contest, now);
        }
        let half_an_hour = Duration::from_mins(30);
        assert!(now - start > half_an_hour, "20 corrections within {:?}", now - start);
        let calm = now + CALM;
        assert!(correct(&mut contest, calm) - calm <= FIRST);
    }

    #[test]
    fn a_sight_that_is_older_than_our_write_is_no_dispute() {
        let mut contest = Contest::new();
        let now = Instant::now();
        for _ in 0..20 {
            assert_eq!(differs(&mut contest, now), Answer::Leave);
            assert_eq!(contest.judge(None, now + LONGEST), Answer::Leave);
        }
        assert!(correct(&mut contest, now) - now <= FIRST);
    }
}
