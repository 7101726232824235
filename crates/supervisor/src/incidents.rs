//! What happened to a card, told for a while after it is over.
//!
//! A state is told while it lasts; that a server died, or a process was ended, is over when it is
//! seen. So that somebody reads of it, it stays in the report for a minute, with the pods that it
//! concerns.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use mpshare_api::status::ReasonText;
use mpshare_core::Reason;
use tracing::warn;

/// For so long it is told.
const TOLD_FOR: Duration = Duration::from_mins(1);

/// More at a time would make a report that nobody reads; what comes later isn't told.
const MOST: usize = 32;

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Incidents(Vec<Incident>);

#[derive(Debug)]
struct Incident {
    at: Instant,
    reason: Reason,
    pods: BTreeSet<String>,
}

impl Incidents {
    /// Something happened, to these pods. The same once more is no news.
    pub(crate) fn note(
        &mut self,
        reason: Reason,
        pods: impl IntoIterator<Item = String>,
        now: Instant,
    ) {
        self.expire(now);
        if self.0.iter().any(|incident| incident.reason == reason) || self.0.len() >= MOST {
            return;
        }
        let pods = pods.into_iter().collect();
        warn!(%reason, ?pods, "incident");
        self.0.push(Incident { at: now, reason, pods });
    }

    /// Forgets what was told for long enough.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.0.retain(|incident| now.duration_since(incident.at) < TOLD_FOR);
    }

    /// What there is to tell.
    pub(crate) fn findings(&self) -> impl Iterator<Item = ReasonText> {
        self.0.iter().map(|incident| ReasonText::about(&incident.reason, incident.pods.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(server: i32) -> Reason {
        Reason::ServerLost { gpu: "GPU-ab".parse().unwrap(), server, pids: vec![1] }
    }

    #[test]
    fn an_incident_is_told_once_and_for_a_minute() {
        let mut incidents = Incidents::default();
        let begin = Instant::now();
        incidents.note(lost(7), Vec::new(), begin);
        incidents.note(lost(7), Vec::new(), begin + Duration::from_secs(30));
        assert_eq!(incidents.findings().count(), 1);
        incidents.expire(begin + TOLD_FOR);
        assert_eq!(incidents.findings().count(), 0);
        incidents.note(lost(7), Vec::new(), begin + TOLD_FOR);
        assert_eq!(incidents.findings().count(), 1);
    }

    #[test]
    fn a_flood_of_incidents_is_bounded() {
        let mut incidents = Incidents::default();
        let now = Instant::now();
        for server in 1..100 {
            incidents.note(lost(server), Vec::new(), now);
        }
        assert_eq!(incidents.findings().count(), MOST);
    }
}
