//! One session with the control daemon through its front-end program.
//!
//! The front-end's exit code says only whether it talked to a daemon, and an open session of
//! somebody else looks like an empty reply (facts/mps.md 1.2, 6.2). So every session ends with a
//! command whose reply is never empty, and only a session with that last line counts as answered.

use std::time::{Duration, Instant};

use crate::limits::PercentDisplay;
use crate::replies;

mod exchange;
mod turn;

pub(crate) use exchange::wait;
pub(crate) use exchange::{Exchange, exchange};
pub(crate) use turn::{Turn, TurnError};

/// The command that ends a session: its reply is never empty and changes nothing.
pub(crate) const SENTINEL: &str = "get_default_active_thread_percentage";

/// What came of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The daemon answered everything.
    Answered {
        /// The reply lines of the commands, without the sentinel's.
        lines: Vec<String>,
        /// The sentinel's reply: the default percentage in force.
        sentinel: PercentDisplay,
    },
    /// Nobody listens (or the directory can't be reached).
    NoDaemon,
    /// Another session is open, or was in the middle of this one: try again.
    Busy,
    /// The front-end hung and was killed.
    TimedOut,
    /// The front-end itself failed.
    Failed(String),
}

/// Judges what a front-end wrote.
pub(crate) fn outcome(exchange: &Exchange) -> Outcome {
    let mut lines: Vec<String> = exchange.stdout.lines().map(str::to_owned).collect();
    if let Some(sentinel) = lines.last().and_then(|line| replies::percent(line)) {
        lines.pop();
        return Outcome::Answered { lines, sentinel };
    }
    if exchange.stderr.contains("Cannot find MPS control daemon") {
        return Outcome::NoDaemon;
    }
    if exchange.stderr.contains("Cannot send command") {
        return Outcome::Busy;
    }
    if exchange.timed_out {
        return Outcome::TimedOut;
    }
    let stderr = exchange.stderr.trim();
    if stderr.is_empty() { Outcome::Busy } else { Outcome::Failed(stderr.to_owned()) }
}

/// Repeats sessions until one isn't [`Outcome::Busy`] or the time is up.
///
/// The pauses grow from 1 to 50 ms, each with a random part, so that several waiting processes
/// don't meet again and again.
pub(crate) fn until_answered<E>(
    deadline: Instant,
    mut session: impl FnMut() -> Result<Outcome, E>,
) -> Result<(Outcome, u32), E> {
    let mut attempts = 0;
    let mut pause = Duration::from_millis(1);
    loop {
        attempts += 1;
        let outcome = session()?;
        if outcome != Outcome::Busy || Instant::now() + pause >= deadline {
            return Ok((outcome, attempts));
        }
        std::thread::sleep(pause + turn::jitter(pause));
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests;
