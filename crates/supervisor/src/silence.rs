//! For how long a control daemon that lives and doesn't answer is borne with: pure.
//!
//! A daemon that waits for a processor looks like one that hangs, and on a machine with too much
//! to do all daemons of a node do at once. Taking their cards out of service helps nobody: running
//! clients don't need the daemon, new ones are held back as long as it is silent, and a pod that
//! the kubelet is just admitting would be refused for good. A dead daemon is another matter; it
//! frees its lock, and is never borne with.
//!
//! Silence can't widen a share. Limits that were verified on a process are that process's until
//! somebody sets others. The report of a silent daemon names no limits all the same, for a command
//! of ours may have reached it without its answer reaching us: `PreStartContainer` waits.

use std::time::{Duration, Instant};

use mpshare_api::GpuStatus;
use mpshare_api::status::DaemonStatus;
use mpshare_mps::ProcessId;

/// From here on a silent daemon counts as broken. Overload passes within seconds, and each look
/// waits for 5 s; a hung daemon costs its node nothing but the wait of new containers, which the
/// kubelet starts again and again.
const PATIENCE: Duration = Duration::from_secs(30);

/// It isn't broken before it was silent more often than that: a supervisor that was itself stopped, or had no
/// processor, finds all the time gone in a single look.
const MIN_LOOKS: u32 = 3;

/// A live daemon that has been asked in vain since it answered last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Silence {
    /// Who doesn't answer.
    pub daemon: ProcessId,
    since: Instant,
    looks: u32,
}

impl Silence {
    /// `daemon` was silent once more, after what was `before`.
    pub(crate) fn of(daemon: ProcessId, before: Option<Self>, now: Instant) -> Self {
        let before = before.filter(|before| before.daemon == daemon);
        let Self { since, looks, .. } = before.unwrap_or(Self { daemon, since: now, looks: 0 });
        Self { daemon, since, looks: looks.saturating_add(1) }
    }

    /// Whether it answered the last time.
    pub(crate) const fn is_new(&self) -> bool {
        self.looks == 1
    }

    /// For how long it has been silent, as far as is known.
    pub(crate) fn lasts(&self, now: Instant) -> Duration {
        now.duration_since(self.since)
    }

    /// What to report after `last`: a card that was in service stays so for a while, but with no
    /// limits to count on. `None` where the silence is a fault.
    pub(crate) fn borne(&self, last: &GpuStatus, now: Instant) -> Option<GpuStatus> {
        let is_over = self.looks > MIN_LOOKS && self.lasts(now) >= PATIENCE;
        if !last.serves_holders() || is_over {
            return None;
        }
        let daemon = last.daemon.as_ref().filter(|daemon| daemon.pid == self.daemon.pid.get())?;
        if self.is_new() && daemon.limits.is_none() {
            return None;
        }
        let daemon = DaemonStatus { limits: None, ..daemon.clone() };
        Some(GpuStatus { daemon: Some(daemon), ..last.clone() })
    }
}

#[cfg(test)]
mod tests {
    use mpshare_api::GpuState;
    use mpshare_api::status::LimitsStatus;
    use mpshare_mps::Pid;

    use super::*;
    use crate::testing::t4;

    const LIMITS: LimitsStatus = LimitsStatus { memory_mib: 7680, percent_tenths: 500 };

    fn daemon(start: u64) -> ProcessId {
        ProcessId { pid: Pid::new(7).unwrap(), start }
    }

    fn report(state: GpuState, pid: i32, limits: Option<LimitsStatus>) -> GpuStatus {
        let daemon = DaemonStatus {
            pid,
            pipe_directory: "/mps/pipe".to_owned(),
            server: Some(8),
            limits,
            clients: Vec::new(),
        };
        GpuStatus { state, daemon: Some(daemon), ..GpuStatus::starting(&t4("GPU-ab")) }
    }

    /// What is reported after the silent looks at these seconds.
    fn after(last: &GpuStatus, seconds: &[u64]) -> Option<GpuStatus> {
        let begin = Instant::now();
        let mut silence = None;
        let mut reported = Some(last.clone());
        for second in seconds {
            let now = begin + Duration::from_secs(*second);
            let next = Silence::of(daemon(1), silence, now);
            reported = reported.and_then(|last| next.borne(&last, now));
            silence = Some(next);
        }
        reported
    }

    #[test]
    fn a_card_in_service_stays_so_without_limits_to_count_on() {
        let last = report(GpuState::Ready, 7, Some(LIMITS));
        let without_limits = report(GpuState::Ready, 7, None);
        assert_eq!(after(&last, &[0]), Some(without_limits.clone()));
        assert_eq!(after(&last, &[0, 6, 12, 18, 24, 29]), Some(without_limits));
    }

    #[test]
    fn a_daemon_that_stays_silent_is_a_fault() {
        let last = report(GpuState::Ready, 7, Some(LIMITS));
        assert_eq!(after(&last, &[0, 6, 12, 18, 24, 30]), None);
    }

    #[test]
    fn time_that_the_supervisor_slept_through_is_no_fault() {
        let last = report(GpuState::Ready, 7, Some(LIMITS));
        assert!(after(&last, &[0, 3600, 3606]).is_some());
        assert_eq!(after(&last, &[0, 3600, 3606, 3612]), None);
    }

    #[test]
    fn silence_puts_no_card_into_service() {
        for state in [
            GpuState::Absent,
            GpuState::Starting,
            GpuState::Draining,
            GpuState::Fault,
            GpuState::Refused,
        ] {
            assert_eq!(after(&report(state, 7, Some(LIMITS)), &[0]), None, "{state}");
        }
        assert_eq!(after(&report(GpuState::Ready, 7, None), &[0]), None, "never verified");
        let whole = GpuStatus { daemon: None, ..report(GpuState::Ready, 7, None) };
        assert_eq!(after(&whole, &[0]), None, "no daemon");
    }

    #[test]
    fn another_process_than_the_reported_one_is_not_borne_with() {
        assert_eq!(after(&report(GpuState::Ready, 6, Some(LIMITS)), &[0]), None);
        let begin = Instant::now();
        let old = Silence::of(daemon(1), None, begin);
        let next = Silence::of(daemon(2), Some(old), begin + PATIENCE);
        assert!(next.is_new() && next.lasts(begin + PATIENCE).is_zero());
    }
}
