//! Waits between attempts to reach the API: doubling, with jitter, so that the nodes of a cluster
//! don't come back in step after its API server was away.

use std::time::Duration;

use kube::runtime::utils::Backoff;

/// Endless waits from a first to a longest one; each is between half and all of its step.
#[derive(Debug, Clone)]
pub(crate) struct Doubling {
    first: Duration,
    longest: Duration,
    step: Duration,
}

impl Doubling {
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, step: first }
    }

    /// The next wait.
    pub(crate) fn wait(&mut self) -> Duration {
        let step = self.step;
        self.step = step.saturating_mul(2).min(self.longest);
        step.mul_f64(f64::midpoint(1.0, fastrand::f64()))
    }
}

impl Iterator for Doubling {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.wait())
    }
}

impl Backoff for Doubling {
    fn reset(&mut self) {
        self.step = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_begin_again_after_a_reset() {
        let second = Duration::from_secs(1);
        let mut waits = Doubling::new(second, second * 4);
        for step in [1, 2, 4, 4] {
            let wait = waits.wait();
            assert!(wait >= second * step / 2 && wait <= second * step, "{wait:?}");
        }
        waits.reset();
        assert!(waits.wait() <= second);
    }
}
