//! How long a node is waited for.

use std::time::Duration;

/// How long a node may take to say where its pods are, and to set a wrong claim right; one that
/// doesn't isn't working.
const PATIENCE: Duration = Duration::from_secs(90);

/// The end of that time, which begins when time is first looked at: facts come without one.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Deadline(Option<Duration>);

impl Deadline {
    /// Whether the time is over.
    pub(super) fn is_over(&mut self, now: Duration) -> bool {
        *self.0.get_or_insert_with(|| now.saturating_add(PATIENCE)) <= now
    }
}
