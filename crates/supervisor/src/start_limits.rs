//! Whether a server has the limits that were in force when it started, exact to the byte.
//!
//! The daemon shows memory in whole GiB, so reading its default back proves little (facts/mps.md
//! 1.2). A server writes what it really got into its log; that is compared here. A server that was
//! there before its limits were known to us, or whose log says nothing, is neither proven nor
//! suspect.

use std::path::Path;
use std::time::{Duration, Instant};

use mpshare_core::{GpuUuid, Limits, Reason};
use mpshare_mps::ProcessId;
use mpshare_mps::log::{LoggedLimits, server_limits, tail};
use tracing::debug;

/// For how long a server that runs isn't counted as running because its log doesn't tell yet: its
/// lines reach the log through the daemon.
const GRACE: Duration = Duration::from_millis(250);

/// From here on a log that says nothing isn't read again.
const DEADLINE: Duration = Duration::from_mins(1);

/// The server that was last met, and what is known of its start.
#[derive(Debug, Default)]
pub(crate) struct StartLimits {
    server: Option<ProcessId>,
    question: Option<Question>,
}

/// A server whose log has to be compared.
#[derive(Debug)]
struct Question {
    expected: Limits,
    since: Instant,
    /// What the log says instead.
    found: Option<String>,
}

impl StartLimits {
    /// A server is there. `in_force` are the verified limits of its daemon when it is met first;
    /// `None` when they aren't known, or may not be those of its start.
    pub(crate) fn met(&mut self, server: ProcessId, in_force: Option<Limits>, now: Instant) {
        if self.server == Some(server) {
            return;
        }
        let ask = |expected| Question { expected, since: now, found: None };
        *self = Self { server: Some(server), question: in_force.map(ask) };
    }

    /// The server's limits are being changed, and its log may tell of that from now on.
    pub(crate) fn changed(&mut self, server: ProcessId) {
        *self = Self { server: Some(server), question: None };
    }

    /// Compares with the log, while that is open.
    pub(crate) fn compare(&mut self, log: &Path, now: Instant) {
        let (Some(server), Some(question)) = (self.server, &mut self.question) else {
            return;
        };
        let text = tail(log).unwrap_or_else(|error| {
            debug!(log = %log.display(), %error, "log can't be read");
            String::new()
        });
        let logged = server_limits(&text, server.pid);
        let is_late = now.duration_since(question.since) >= DEADLINE;
        question.found = mismatch(question.expected, logged);
        if question.found.is_none() && (logged.memory_bytes.is_some() || is_late) {
            self.question = None;
        }
    }

    /// Whether the log should tell in a moment.
    pub(crate) fn is_awaited(&self, now: Instant) -> bool {
        self.question.as_ref().is_some_and(|question| {
            question.found.is_none() && now.duration_since(question.since) < GRACE
        })
    }

    /// What is wrong with the server.
    pub(crate) fn trouble(&self, gpu: &GpuUuid) -> Option<Reason> {
        let Question { expected, found, .. } = self.question.as_ref()?;
        let wanted = describe(expected.memory.bytes(), &expected.percent.to_string());
        Some(Reason::LimitMismatch { gpu: gpu.clone(), wanted, found: found.clone()? })
    }
}

/// What the log says, where that isn't what is expected.
fn mismatch(expected: Limits, logged: LoggedLimits) -> Option<String> {
    let is_memory = logged.memory_bytes.is_none_or(|bytes| bytes == expected.memory.bytes());
    let is_percent = logged.percent.is_none_or(|percent| percent == expected.percent);
    if is_memory && is_percent {
        return None;
    }
    let memory = logged.memory_bytes.unwrap_or_else(|| expected.memory.bytes());
    Some(describe(memory, &logged.percent.unwrap_or(expected.percent).to_string()))
}

fn describe(bytes: u64, percent: &str) -> String {
    format!("{bytes} bytes and {percent} %")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use mpshare_core::{Memory, ThreadPercent};
    use mpshare_mps::Pid;

    use super::*;

    fn limits(mib: u64) -> Limits {
        Limits { memory: Memory::from_mib(mib), percent: ThreadPercent::FULL }
    }

    fn server(pid: i32) -> ProcessId {
        ProcessId { pid: Pid::new(pid).unwrap(), start: 1 }
    }

    /// A log in which server 7 has 7680 MiB.
    fn log(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("mpshare-{name}-{}.log", std::process::id()));
        let line = "[2026-11-30 05:33:04.901 Server     7] \
            Device pinned memory limit for device 0 set to 0x1e0000000 bytes\n";
        std::fs::write(&path, line).unwrap();
        path
    }

    fn compared(name: &str, pid: i32, in_force: Option<Limits>, after: Duration) -> StartLimits {
        let path = log(name);
        let (mut view, start) = (StartLimits::default(), Instant::now());
        view.met(server(pid), in_force, start);
        view.compare(&path, start + after);
        std::fs::remove_file(path).unwrap();
        view
    }

    fn trouble(view: &StartLimits) -> Option<String> {
        view.trouble(&"GPU-ab".parse().unwrap()).map(|reason| reason.to_string())
    }

    #[test]
    fn a_server_with_the_limits_in_force_is_fine_and_not_waited_for() {
        let view = compared("same", 7, Some(limits(7680)), Duration::ZERO);
        assert_eq!(trouble(&view), None);
        assert!(!view.is_awaited(Instant::now()));
    }

    #[test]
    fn a_server_that_got_other_limits_is_in_trouble_even_within_the_gib_that_the_daemon_shows() {
        let view = compared("other", 7, Some(limits(7200)), Duration::ZERO);
        let said = trouble(&view).unwrap();
        assert!(said.contains("8053063680 bytes and 100.0 %"), "{said}");
        assert!(said.contains("7549747200 bytes and 100.0 %"), "{said}");
    }

    #[test]
    fn a_silent_log_is_waited_for_a_moment_and_proves_nothing() {
        let view = compared("silent", 8, Some(limits(7680)), Duration::ZERO);
        let asked = view.question.as_ref().unwrap().since;
        assert!(view.is_awaited(asked));
        assert!(!view.is_awaited(asked + GRACE));
        assert_eq!(trouble(&view), None);
        let late = compared("late", 8, Some(limits(7680)), DEADLINE);
        assert!(late.question.is_none(), "it isn't read for ever");
    }

    #[test]
    fn a_server_that_was_there_before_or_whose_limits_were_changed_is_not_judged() {
        assert_eq!(trouble(&compared("before", 7, None, Duration::ZERO)), None);
        let mut view = compared("changed", 7, Some(limits(7200)), Duration::ZERO);
        view.changed(server(7));
        assert_eq!(trouble(&view), None);
    }
}
