//! What others say to a card's control daemon, by its log.
//!
//! A container whose processes are root for the node can reach the daemon's socket with the front-end's
//! commands (facts/mps.md 1.2): set other limits, or end the daemon or its server. What the daemon
//! shows of its limits is cut to whole GiB, so they aren't read back again and again; the log has each
//! command as it was sent, and what isn't one of ours was somebody else's. It also tells of each
//! process that wants to be a client.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use mpshare_mps::log::{self, ControlLine, Follower, News};
use mpshare_mps::{DaemonLimits, Deed, Pid, ProcessId, deed};
use tracing::debug;

use crate::printable::printable;

/// A client that isn't on its card so long after it came waits, or needs no context.
const UNSERVED_AFTER: Duration = Duration::from_secs(10);

/// A daemon that quits is gone so long after its last client.
const QUITS_WITHIN: Duration = Duration::from_secs(5);

/// The longest command that is told.
const LONGEST: usize = 80;

/// So many that came are remembered.
const MOST: usize = 256;

/// What was heard of one daemon.
#[derive(Debug, Default)]
pub(crate) struct Overheard {
    daemon: Option<(ProcessId, Follower)>,
    is_quitting: bool,
    /// Since when a daemon that is quitting has had no clients.
    empty_since: Option<Instant>,
    /// A server that we ended ourselves.
    ended_by_us: Option<Pid>,
    /// Commands of others that weren't told yet.
    told: Vec<String>,
    /// Who came, and hasn't been seen on the card.
    came: BTreeMap<Pid, Instant>,
}

/// What follows for the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing.
    None,
    /// Its limits may be others than they should be.
    Limits,
    /// It takes no more clients, and ends after those that it has.
    Quitting,
}

impl Overheard {
    /// Hears what was said to `daemon` since the last time, or what matters still of all that was
    /// said to one that wasn't known. `limits` are those that it should have.
    pub(crate) fn listen(
        &mut self,
        daemon: ProcessId,
        control_log: &Path,
        limits: Option<DaemonLimits>,
        now: Instant,
    ) -> Effect {
        let known = self
            .daemon
            .take_if(|(known, follower)| *known == daemon && follower.path() == control_log);
        let Some((_, mut follower)) = known else {
            *self = Self::default();
            let follower = Follower::from_now(control_log);
            self.is_quitting = was_told_to_quit(control_log, daemon.pid);
            self.daemon = Some((daemon, follower));
            return if self.is_quitting { Effect::Quitting } else { Effect::None };
        };
        let news = follower.news().unwrap_or_else(|error| {
            debug!(log = %control_log.display(), %error, "log can't be read");
            News::default()
        });
        self.daemon = Some((daemon, follower));
        let mut effect = if news.has_gap { Effect::Limits } else { Effect::None };
        for line in log::control_lines(&news.text, daemon.pid) {
            match line {
                ControlLine::Client(pid) if self.came.len() < MOST => {
                    self.came.insert(pid, now);
                }
                ControlLine::Client(_) => {}
                ControlLine::Command(command) => {
                    if self.take(command, limits) == Effect::Limits {
                        effect = Effect::Limits;
                    }
                }
            }
        }
        if self.is_quitting { Effect::Quitting } else { effect }
    }

    fn take(&mut self, command: &str, limits: Option<DaemonLimits>) -> Effect {
        let Some(deed) = deed(command, limits) else { return Effect::None };
        if matches!(deed, Deed::ShutsDown(Some(server)) if self.ended_by_us == Some(server)) {
            return Effect::None;
        }
        self.told.push(printable(command.trim(), LONGEST));
        match deed {
            Deed::SetsLimits => Effect::Limits,
            Deed::Quits => {
                self.is_quitting = true;
                Effect::None
            }
            Deed::ShutsDown(_) => Effect::None,
        }
    }

    /// Whether a daemon that was told to quit doesn't, though it has no clients: it may wait for a
    /// server that never finishes its start.
    pub(crate) fn is_stuck_quitting(&mut self, clients: usize, now: Instant) -> bool {
        if clients > 0 {
            self.empty_since = None;
            return false;
        }
        now.duration_since(*self.empty_since.get_or_insert(now)) >= QUITS_WITHIN
    }

    /// We are about to end a server ourselves.
    pub(crate) const fn ending(&mut self, server: Pid) {
        self.ended_by_us = Some(server);
    }

    /// Commands of others since the last call.
    pub(crate) fn news(&mut self) -> Vec<String> {
        std::mem::take(&mut self.told)
    }

    /// Whether somebody came a while ago, lives, and isn't on the card. Each is a reason once.
    pub(crate) fn is_somebody_unserved(
        &mut self,
        now: Instant,
        is_on_card: impl Fn(Pid) -> bool,
        is_alive: impl Fn(Pid) -> bool,
    ) -> bool {
        self.came.retain(|pid, _| !is_on_card(*pid));
        let due = |since: &Instant| now.duration_since(*since) >= UNSERVED_AFTER;
        let waits = self.came.iter().any(|(pid, since)| due(since) && is_alive(*pid));
        self.came.retain(|_, since| !due(since));
        waits
    }

    /// Whether somebody came who may have to wait.
    pub(crate) fn awaits_somebody(&self) -> bool {
        !self.came.is_empty()
    }
}

/// Whether a daemon that somebody else started was told to end, and hasn't yet.
fn was_told_to_quit(control_log: &Path, daemon: Pid) -> bool {
    let text = log::tail(control_log).unwrap_or_default();
    let quits = |line: &ControlLine<'_>| {
        matches!(line, ControlLine::Command(command)
            if command.split_whitespace().next() == Some("quit"))
    };
    log::control_lines(&text, daemon).iter().any(quits)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use mpshare_core::{Memory, ThreadPercent};
    use mpshare_mps::PinnedLimit;

    use super::*;

    struct Log {
        _dir: tempfile::TempDir,
        path: std::path::PathBuf,
    }

    impl Log {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("control.log");
            Self { _dir: dir, path }
        }

        fn say(&self, text: &str) {
            let mut file = std::fs::File::options();
            let mut file = file.append(true).create(true).open(&self.path).unwrap();
            writeln!(file, "[2026-11-30 05:33:04.867 Control     7] {text}").unwrap();
        }
    }

    fn daemon() -> ProcessId {
        ProcessId { pid: Pid::new(7).unwrap(), start: 1 }
    }

    fn limits() -> DaemonLimits {
        let memory = PinnedLimit::new(Memory::from_mib(7680)).unwrap();
        DaemonLimits { memory, percent: ThreadPercent::FULL }
    }

    fn heard(overheard: &mut Overheard, log: &Log) -> Effect {
        overheard.listen(daemon(), &log.path, Some(limits()), Instant::now())
    }

    #[test]
    fn limits_of_others_have_to_be_put_right_and_ours_and_questions_do_not() {
        let (mut overheard, log) = (Overheard::default(), Log::new());
        log.say("Cmd:set_default_device_pinned_mem_limit 0 1G");
        assert_eq!(heard(&mut overheard, &log), Effect::None, "before we knew it");
        log.say("Cmd:set_default_device_pinned_mem_limit 0 7680M");
        log.say("Cmd:get_server_list");
        assert_eq!(heard(&mut overheard, &log), Effect::None);
        log.say("Cmd:set_default_device_pinned_mem_limit 0 100G");
        assert_eq!(heard(&mut overheard, &log), Effect::Limits);
        assert_eq!(overheard.news(), ["set_default_device_pinned_mem_limit 0 100G"]);
        assert_eq!(heard(&mut overheard, &log), Effect::None);
        assert!(overheard.news().is_empty());
    }

    #[test]
    fn a_daemon_that_was_told_to_quit_is_quitting_to_its_end_also_for_a_new_supervisor() {
        let (mut overheard, log) = (Overheard::default(), Log::new());
        heard(&mut overheard, &log);
        // Also while its limits aren't known.
        log.say("Cmd:quit");
        let early = overheard.listen(daemon(), &log.path, None, Instant::now());
        assert_eq!(early, Effect::Quitting);
        assert_eq!(heard(&mut overheard, &log), Effect::Quitting);
        assert_eq!(heard(&mut overheard, &log), Effect::Quitting);
        assert_eq!(heard(&mut Overheard::default(), &log), Effect::Quitting);
        let next = ProcessId { pid: Pid::new(8).unwrap(), start: 2 };
        let effect = overheard.listen(next, &log.path, Some(limits()), Instant::now());
        assert_eq!(effect, Effect::None);
    }

    #[test]
    fn a_daemon_that_should_be_gone_by_now_is_stuck_and_one_with_clients_is_not() {
        let (mut overheard, begin) = (Overheard::default(), Instant::now());
        assert!(!overheard.is_stuck_quitting(0, begin));
        assert!(!overheard.is_stuck_quitting(1, begin + QUITS_WITHIN));
        assert!(!overheard.is_stuck_quitting(0, begin + QUITS_WITHIN));
        assert!(overheard.is_stuck_quitting(0, begin + 2 * QUITS_WITHIN));
    }

    #[test]
    fn a_server_that_we_end_is_nobody_elses_deed() {
        let (mut overheard, log) = (Overheard::default(), Log::new());
        heard(&mut overheard, &log);
        overheard.ending(Pid::new(12).unwrap());
        log.say("Cmd:shutdown_server 12 -f");
        heard(&mut overheard, &log);
        assert!(overheard.news().is_empty());
        log.say("Cmd:shutdown_server 13 -f");
        heard(&mut overheard, &log);
        assert_eq!(overheard.news(), ["shutdown_server 13 -f"]);
    }

    #[test]
    fn who_came_lives_and_is_not_on_the_card_is_unserved_once() {
        let (mut overheard, log) = (Overheard::default(), Log::new());
        heard(&mut overheard, &log);
        for client in ["20", "21", "22"] {
            log.say(&format!("NEW CLIENT {client} from user 0: Server already exists"));
        }
        heard(&mut overheard, &log);
        let mut at = |after: Duration| {
            let now = Instant::now() + after;
            overheard.is_somebody_unserved(now, |pid| pid.get() == 20, |pid| pid.get() == 21)
        };
        assert!(!at(Duration::from_secs(1)));
        assert!(at(UNSERVED_AFTER));
        assert!(!at(UNSERVED_AFTER));
        assert!(!overheard.awaits_somebody());
    }
}
