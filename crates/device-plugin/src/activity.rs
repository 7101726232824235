//! Whether the kubelet is handing out units right now, or did a moment ago.

use std::time::Instant;

/// Calls of the kubelet that name device ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Activity {
    under_way: usize,
    last: Option<Instant>,
}

impl Activity {
    /// A call came in.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.under_way += 1;
        self.last = Some(now);
    }

    /// A call was answered, or given up.
    pub(crate) fn end(&mut self, now: Instant) {
        self.under_way = self.under_way.saturating_sub(1);
        self.last = Some(now);
    }

    /// Since when, but not before `earliest`, no call has been under way; `None` while one is.
    pub(crate) fn quiet_since(self, earliest: Instant) -> Option<Instant> {
        let last = self.last.unwrap_or(earliest);
        (self.under_way == 0).then_some(last.max(earliest))
    }
}
