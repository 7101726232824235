//! Whether a card's MPS server still takes clients: canaries, sent rarely, and on suspicion.
//!
//! A server may be ACTIVE, serve the clients that it has, and leave each new one waiting for ever.
//! A canary of ours finds that out. It costs a context, so it is sent every few minutes, and sooner
//! when something looks like it: an Xid, or a client that came and isn't on the card after a while.
//! One that fails is followed by another at once; a machine with too much to do isn't a broken card.

use std::time::{Duration, Instant};

use mpshare_core::{GpuUuid, Reason};
use mpshare_mps::{ControlDaemon, Depth, Flight, Pid, ProcessId, Sign};
use tracing::{debug, info, warn};

use crate::options::CanaryRules;

/// Two canaries on suspicion have at least this time between them.
const SUSPICION_GAP: Duration = Duration::from_secs(15);

/// After a failure the next one follows so soon.
const AGAIN: Duration = Duration::from_secs(1);

/// A server that is known to be wedged is tried that often: it may come back.
const WEDGED_EVERY: Duration = Duration::from_secs(10);

/// So many canaries in a row have to wait in vain.
const SILENT_IN_A_ROW: u32 = 2;

/// So many have to be refused: a server that cleans up, or comes up, refuses for a moment
/// (facts/mps.md 4.1).
const REFUSED_IN_A_ROW: u32 = 5;

/// The canaries of a card.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    flight: Option<Flight>,
    record: Record,
    has_complained: bool,
}

/// Who is tried.
#[derive(Clone, Copy)]
pub(crate) struct Patient<'a> {
    pub gpu: &'a GpuUuid,
    pub server: ProcessId,
    pub daemon: &'a dyn ControlDaemon,
}

/// What canaries have shown of a server: pure.
#[derive(Debug, Default)]
struct Record {
    server: Option<ProcessId>,
    /// When the last one was sent, or the server met.
    last: Option<Instant>,
    is_suspected: bool,
    silent: u32,
    refused: u32,
    /// How the last one of a wedged server fared.
    wedged: Option<String>,
}

impl Record {
    fn meet(&mut self, server: ProcessId, now: Instant) {
        if self.server != Some(server) {
            *self = Self { server: Some(server), last: Some(now), ..Self::default() };
        }
    }

    fn is_due(&self, rules: &CanaryRules, now: Instant) -> bool {
        let (Some(last), Some(period)) = (self.last, rules.period) else { return false };
        // The alarm comes within a period of what it is about.
        let routine = period.saturating_sub(rules.deadline * SILENT_IN_A_ROW);
        let routine = routine.max(rules.deadline).min(period);
        let wait = if self.wedged.is_some() {
            WEDGED_EVERY
        } else if self.silent + self.refused > 0 {
            AGAIN
        } else if self.is_suspected {
            SUSPICION_GAP
        } else {
            routine
        };
        now.duration_since(last) >= wait.min(routine)
    }

    fn take(&mut self, sign: &Sign) {
        self.is_suspected = false;
        match sign {
            Sign::Served => (self.silent, self.refused, self.wedged) = (0, 0, None),
            Sign::Silent { .. } => self.silent += 1,
            Sign::Refused { .. } => self.refused += 1,
            Sign::Unable(_) => {}
        }
        if self.silent >= SILENT_IN_A_ROW || self.refused >= REFUSED_IN_A_ROW {
            self.wedged = Some(fared(sign));
        }
    }
}

/// In words without a number that changes each time.
fn fared(sign: &Sign) -> String {
    match sign {
        Sign::Silent { .. } => "waited in vain".to_owned(),
        Sign::Refused { call, code } => format!("got CUDA error {code} from `{call}`"),
        Sign::Served | Sign::Unable(_) => "failed".to_owned(),
    }
}

impl Watchdog {
    /// Something looks as if the server took no clients.
    pub(crate) const fn suspect(&mut self) {
        self.record.is_suspected = true;
    }

    /// The process of a canary that is on its way.
    pub(crate) fn pid(&self) -> Option<i32> {
        self.flight.as_ref().and_then(Flight::pid).map(Pid::get)
    }

    /// Sends one if it is time to, and hears of the last one. `depth` is asked when one is sent;
    /// `None` from it: none can be sent now.
    pub(crate) fn look(
        &mut self,
        Patient { gpu, server, daemon }: Patient<'_>,
        rules: &CanaryRules,
        now: Instant,
        depth: impl FnOnce() -> Option<Depth>,
    ) {
        if self.record.server != Some(server) {
            // One that was sent to its predecessor says nothing about this one.
            self.flight = None;
            self.record.meet(server, now);
        }
        self.hear(gpu, now);
        if self.flight.is_some() || !self.record.is_due(rules, now) {
            return;
        }
        let Some(command) = depth().and_then(|depth| daemon.canary(depth)) else { return };
        self.record.last = Some(now);
        match Flight::start(command, rules.deadline) {
            Ok(flight) => self.flight = Some(flight),
            Err(error) => self.complain(gpu, &error.to_string()),
        }
    }

    fn hear(&mut self, gpu: &GpuUuid, now: Instant) {
        let Some(flight) = &mut self.flight else { return };
        let sign = match flight.sign(now) {
            Ok(None) => return,
            Ok(Some(sign)) => sign,
            Err(error) => Sign::Unable(error.to_string()),
        };
        self.flight = None;
        // Its time counts from its end: a machine that is slow isn't asked more often.
        self.record.last = Some(now);
        let was_wedged = self.record.wedged.is_some();
        self.record.take(&sign);
        match &sign {
            Sign::Unable(problem) => self.complain(gpu, problem),
            Sign::Served if was_wedged => info!(%gpu, "the MPS server takes clients again"),
            Sign::Served => debug!(%gpu, "the MPS server takes clients"),
            Sign::Silent { .. } | Sign::Refused { .. } => {
                info!(%gpu, %sign, "a canary wasn't served by the MPS server");
            }
        }
    }

    /// Once: it stays so until somebody does something about it.
    fn complain(&mut self, gpu: &GpuUuid, problem: &str) {
        if !self.has_complained {
            warn!(%gpu, problem, "whether the MPS server takes clients can't be tried");
            self.has_complained = true;
        }
    }

    /// What is wrong with the server, which has so many clients.
    pub(crate) fn trouble(&self, gpu: &GpuUuid, clients: usize) -> Option<Reason> {
        let server = self.record.server?.pid.get();
        let how = self.record.wedged.clone()?;
        Some(Reason::ServerWedged { gpu: gpu.clone(), server, how, clients })
    }

    /// Whether anything goes on that the next look has to follow.
    pub(crate) const fn is_busy(&self) -> bool {
        self.flight.is_some() || self.record.silent + self.record.refused > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn rules() -> CanaryRules {
        CanaryRules { period: Some(SECOND * 300), deadline: SECOND * 20 }
    }

    fn met(now: Instant) -> Record {
        let mut record = Record::default();
        record.meet(ProcessId { pid: Pid::new(7).unwrap(), start: 1 }, now);
        record
    }

    fn silent() -> Sign {
        Sign::Silent { waited: SECOND * 20 }
    }

    fn refused() -> Sign {
        Sign::Refused { call: "cuInit".to_owned(), code: 807 }
    }

    #[test]
    fn a_server_is_tried_so_that_an_alarm_comes_within_the_period_and_sooner_on_suspicion() {
        let begin = Instant::now();
        let mut record = met(begin);
        assert!(!record.is_due(&rules(), begin + SECOND * 259));
        assert!(record.is_due(&rules(), begin + SECOND * 260));
        record.is_suspected = true;
        assert!(!record.is_due(&rules(), begin + SECOND * 14));
        assert!(record.is_due(&rules(), begin + SUSPICION_GAP));
    }

    #[test]
    fn with_a_period_of_none_nobody_is_sent() {
        let begin = Instant::now();
        let mut record = met(begin);
        record.is_suspected = true;
        let rules = CanaryRules { period: None, ..rules() };
        assert!(!record.is_due(&rules, begin + SECOND * 100_000));
    }

    #[test]
    fn one_canary_that_waits_in_vain_is_followed_at_once_and_the_second_is_an_alarm() {
        let begin = Instant::now();
        let mut record = met(begin);
        record.take(&silent());
        assert_eq!(record.wedged, None);
        assert!(record.is_due(&rules(), begin + AGAIN));
        record.take(&silent());
        assert_eq!(record.wedged.as_deref(), Some("waited in vain"));
        assert!(!record.is_due(&rules(), begin + AGAIN));
        assert!(record.is_due(&rules(), begin + WEDGED_EVERY));
        record.take(&Sign::Served);
        assert_eq!(record.wedged, None);
    }

    #[test]
    fn a_canary_that_is_served_ends_a_row_and_one_that_cannot_fly_counts_for_nothing() {
        let mut record = met(Instant::now());
        for sign in [silent(), Sign::Served, silent(), Sign::Unable("x".to_owned())] {
            record.take(&sign);
        }
        assert_eq!(record.wedged, None);
        for _ in 1..REFUSED_IN_A_ROW {
            record.take(&refused());
        }
        assert_eq!(record.wedged, None);
        record.take(&refused());
        assert_eq!(record.wedged.as_deref(), Some("got CUDA error 807 from `cuInit`"));
    }

    #[test]
    fn another_server_begins_anew() {
        let begin = Instant::now();
        let mut record = met(begin);
        record.take(&silent());
        record.take(&silent());
        record.meet(ProcessId { pid: Pid::new(8).unwrap(), start: 2 }, begin);
        assert_eq!(record.wedged, None);
        assert!(!record.is_due(&rules(), begin + WEDGED_EVERY));
    }
}
