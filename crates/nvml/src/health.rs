//! When a card counts as ill, and when it is well again.
//!
//! A state machine without a clock: the caller says what happened and when. A card recovers only
//! after it was quiet and answering for a while, so that one with a fault that comes and goes
//! doesn't go in and out of the node's capacity.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mpshare_core::GpuUuid;

use crate::inventory::{EventKind, HealthEvent};
use crate::xid::XidPolicy;

/// Which cards are ill, and since when they have been quiet.
#[derive(Debug, Clone)]
pub struct HealthTracker {
    policy: XidPolicy,
    quiet: Duration,
    ill: BTreeMap<GpuUuid, Illness>,
}

/// A card's health changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It was well and is ill now.
    FellIll(GpuUuid, EventKind),
    /// It was ill and is well now.
    Recovered(GpuUuid),
}

/// What ails a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Illness {
    /// The latest cause.
    cause: EventKind,
    /// Since when it has answered with no further event; `None` while it doesn't answer.
    quiet_since: Option<Instant>,
}

impl HealthTracker {
    /// How long a card has to be quiet before it counts as well, unless told otherwise.
    pub const QUIET: Duration = Duration::from_mins(1);

    /// All cards are well.
    pub const fn new(policy: XidPolicy, quiet: Duration) -> Self {
        Self { policy, quiet, ill: BTreeMap::new() }
    }

    /// The cause, while the card is ill.
    pub fn ailment(&self, gpu: &GpuUuid) -> Option<EventKind> {
        self.ill.get(gpu).map(|illness| illness.cause)
    }

    /// Takes in an event. One that names no card is about each of `all`.
    pub fn event(&mut self, event: &HealthEvent, all: &[GpuUuid], now: Instant) -> Vec<Change> {
        if let EventKind::Xid(xid) = event.kind
            && !self.policy.is_critical(xid)
        {
            return Vec::new();
        }
        let gpus = event.gpu.as_ref().map_or(all, std::slice::from_ref);
        gpus.iter().filter_map(|gpu| self.falls_ill(gpu, event.kind, now)).collect()
    }

    /// Takes in whether a card answers.
    pub fn probed(&mut self, gpu: &GpuUuid, answer: Answer, now: Instant) -> Option<Change> {
        if answer == Answer::None {
            return self.falls_ill(gpu, EventKind::Lost, now);
        }
        let illness = self.ill.get_mut(gpu)?;
        let since = *illness.quiet_since.get_or_insert(now);
        if now.saturating_duration_since(since) < self.quiet {
            return None;
        }
        self.ill.remove(gpu);
        Some(Change::Recovered(gpu.clone()))
    }

    fn falls_ill(&mut self, gpu: &GpuUuid, cause: EventKind, now: Instant) -> Option<Change> {
        let quiet_since = (cause != EventKind::Lost).then_some(now);
        let illness = Illness { cause, quiet_since };
        match self.ill.insert(gpu.clone(), illness) {
            None => Some(Change::FellIll(gpu.clone(), cause)),
            Some(_) => None,
        }
    }
}

/// Whether a card answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It does.
    Given,
    /// It doesn't.
    None,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(n: u8) -> GpuUuid {
        format!("GPU-{n:08x}").parse().unwrap()
    }

    fn xid(gpu: Option<GpuUuid>, xid: u64) -> HealthEvent {
        HealthEvent { gpu, kind: EventKind::Xid(xid) }
    }

    fn tracker() -> HealthTracker {
        HealthTracker::new(XidPolicy::default(), HealthTracker::QUIET)
    }

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn a_critical_xid_makes_its_card_ill_and_no_other() {
        let (mut health, now) = (tracker(), Instant::now());
        let changes = health.event(&xid(Some(gpu(1)), 79), &[gpu(1), gpu(2)], now);
        assert_eq!(changes, [Change::FellIll(gpu(1), EventKind::Xid(79))]);
        assert_eq!(health.ailment(&gpu(1)), Some(EventKind::Xid(79)));
        assert_eq!(health.ailment(&gpu(2)), None);
    }

    #[test]
    fn the_xid_of_a_failing_program_changes_nothing() {
        let mut health = tracker();
        assert!(health.event(&xid(Some(gpu(1)), 31), &[gpu(1)], Instant::now()).is_empty());
        assert_eq!(health.ailment(&gpu(1)), None);
    }

    #[test]
    fn an_event_without_a_card_is_about_all() {
        let mut health = tracker();
        let changes = health.event(&xid(None, 79), &[gpu(1), gpu(2)], Instant::now());
        assert_eq!(changes.len(), 2);
    }

    #[test]
    fn a_card_recovers_after_a_minute_of_quiet_and_not_before() {
        let (mut health, start) = (tracker(), Instant::now());
        health.event(&xid(Some(gpu(1)), 79), &[], start);
        assert_eq!(health.probed(&gpu(1), Answer::Given, after(start, 59)), None);
        assert_eq!(
            health.probed(&gpu(1), Answer::Given, after(start, 60)),
            Some(Change::Recovered(gpu(1)))
        );
        assert_eq!(health.ailment(&gpu(1)), None);
    }

    #[test]
    fn another_event_starts_the_quiet_time_anew_and_is_told_once() {
        let (mut health, start) = (tracker(), Instant::now());
        health.event(&xid(Some(gpu(1)), 79), &[], start);
        assert!(health.event(&xid(Some(gpu(1)), 48), &[], after(start, 50)).is_empty());
        assert_eq!(health.probed(&gpu(1), Answer::Given, after(start, 100)), None);
        assert_eq!(health.ailment(&gpu(1)), Some(EventKind::Xid(48)));
        assert!(health.probed(&gpu(1), Answer::Given, after(start, 110)).is_some());
    }

    #[test]
    fn a_lost_card_has_to_answer_for_a_minute() {
        let (mut health, start) = (tracker(), Instant::now());
        let lost = health.probed(&gpu(1), Answer::None, start);
        assert_eq!(lost, Some(Change::FellIll(gpu(1), EventKind::Lost)));
        assert_eq!(health.probed(&gpu(1), Answer::Given, after(start, 600)), None);
        assert_eq!(health.probed(&gpu(1), Answer::None, after(start, 630)), None);
        assert_eq!(health.probed(&gpu(1), Answer::Given, after(start, 640)), None);
        assert_eq!(health.probed(&gpu(1), Answer::Given, after(start, 699)), None);
        assert!(health.probed(&gpu(1), Answer::Given, after(start, 700)).is_some());
    }
}
