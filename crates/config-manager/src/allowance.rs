//! So much at once, and then one more now and again: how often something may be said.

use std::time::{Duration, Instant};

/// An allowance that fills up by itself.
#[derive(Debug)]
pub(crate) struct Allowance {
    most: u32,
    refill: Duration,
    left: u32,
    refilled: Instant,
}

/// Something may be said once.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Leave;

impl Allowance {
    /// A full one, of `most`, which gains one per `refill`.
    pub(crate) const fn new(most: u32, refill: Duration, now: Instant) -> Self {
        Self { most, refill, left: most, refilled: now }
    }

    /// Takes one of it, if there is one.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Leave> {
        self.fill(now);
        self.left = self.left.checked_sub(1)?;
        Some(Leave)
    }

    /// Whether it is as a new one.
    pub(crate) fn is_full(&mut self, now: Instant) -> bool {
        self.fill(now);
        self.left == self.most
    }

    fn fill(&mut self, now: Instant) {
        while self.left < self.most && now.duration_since(self.refilled) >= self.refill {
            self.refilled += self.refill;
            self.left += 1;
        }
        if self.left == self.most {
            self.refilled = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_comes_back_one_by_one_and_no_more_than_there_was() {
        let (start, refill) = (Instant::now(), Duration::from_secs(10));
        let mut allowance = Allowance::new(2, refill, start);
        let mut taken = |seconds| {
            let now = start + Duration::from_secs(seconds);
            std::iter::from_fn(|| allowance.take(now)).count()
        };
        assert_eq!([taken(0), taken(9), taken(10), taken(1000)], [2, 0, 1, 2]);
        assert!(!allowance.is_full(start + Duration::from_secs(1019)));
        assert!(allowance.is_full(start + Duration::from_mins(17)));
    }
}
