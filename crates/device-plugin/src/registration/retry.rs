//! Pauses between attempts: doubled each time, bounded, and never in step with other plugins.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The next pause.
#[derive(Debug)]
pub(super) struct Retry {
    first: Duration,
    longest: Duration,
    next: Duration,
    seed: RandomState,
}

impl Retry {
    /// Pauses from `first` to `longest`.
    pub(super) fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first, seed: RandomState::new() }
    }

    /// Begins again at the shortest pause.
    pub(super) const fn reset(&mut self) {
        self.next = self.first;
    }

    /// Between half of the pause that is due and the whole of it.
    pub(super) fn next_pause(&mut self) -> Duration {
        let due = self.next;
        self.next = (due * 2).min(self.longest);
        let spread = u32::try_from(self.seed.hash_one(due) % 512).unwrap_or_default();
        due / 2 + due / 1024 * spread
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_stay_within_half_and_whole() {
        let (first, longest) = (Duration::from_millis(10), Duration::from_millis(35));
        let mut retry = Retry::new(first, longest);
        for due in [10, 20, 35, 35] {
            let due = Duration::from_millis(due);
            let pause = retry.next_pause();
            assert!(pause >= due / 2 && pause <= due, "{pause:?} of {due:?}");
        }
        retry.reset();
        assert!(retry.next_pause() <= first);
    }
}
