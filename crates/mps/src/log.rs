//! What the control daemon and its servers wrote into their logs.
//!
//! Form (facts/mps.md 7): `[2026-11-30 05:33:04.867 Control  7412] text`, in local time without a
//! zone. Logs only tell why; whether something runs is asked of the lock and of the daemon.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use mpshare_core::ThreadPercent;

use crate::limits::PercentDisplay;
use crate::pid::Pid;
use crate::replies;

mod follower;

pub use follower::{Follower, News};

/// How much of a log's end is read.
const TAIL: u64 = 64 * 1024;

/// Who wrote a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The control daemon.
    Control,
    /// A server.
    Server,
    /// A process that doesn't know yet what it will be.
    Other,
}

/// One line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LogLine<'a> {
    /// Local time, `2026-11-30 05:33:04.867`.
    pub time: &'a str,
    /// Who wrote it.
    pub role: Role,
    /// Its process.
    pub pid: Pid,
    /// What it says.
    pub text: &'a str,
}

/// The limits that a server wrote down at its start or when they were changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LoggedLimits {
    /// Pinned memory limit of device 0, in bytes: exact, unlike what the daemon shows.
    pub memory_bytes: Option<u64>,
    /// Active thread percentage.
    pub percent: Option<ThreadPercent>,
}

/// A process that connected to the control daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewClient {
    /// Its process.
    pub pid: Pid,
    /// Its user, as the daemon counts it: 0 for all where one server takes all users.
    pub uid: u32,
}

/// Reads the end of a log, whole lines only. A log that isn't there is empty.
pub fn tail(path: &Path) -> io::Result<String> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(error),
    };
    let skipped = file.metadata()?.len().saturating_sub(TAIL);
    file.seek(SeekFrom::Start(skipped))?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    if skipped == 0 {
        return Ok(text);
    }
    Ok(text.split_once('\n').map_or(text.clone(), |(_, rest)| rest.to_owned()))
}

/// Reads one line; `None` for one of another form.
fn parse_line(line: &str) -> Option<LogLine<'_>> {
    let (head, text) = line.strip_prefix('[')?.split_once(']')?;
    let (time, writer) = head.split_at_checked("2026-11-30 05:33:04.867".len())?;
    let (role, pid) = writer.trim().rsplit_once(' ')?;
    let role = match role.trim() {
        "Control" => Role::Control,
        "Server" | "Legacy Server" => Role::Server,
        "Other" => Role::Other,
        _ => return None,
    };
    Some(LogLine { time, role, pid: pid.parse().ok().and_then(Pid::new)?, text: text.trim() })
}

/// The latest limits that a server wrote into `server.log`, since its own start: an earlier one may
/// have had its process id.
pub fn server_limits(log: &str, server: Pid) -> LoggedLimits {
    let mut limits = LoggedLimits::default();
    for line in of(log, server) {
        if line == "Startup" {
            limits = LoggedLimits::default();
        } else if let Some(bytes) = line
            .strip_prefix("Device pinned memory limit for device 0 set to 0x")
            .and_then(|rest| rest.strip_suffix(" bytes"))
        {
            limits.memory_bytes = u64::from_str_radix(bytes, 16).ok();
        } else if let Some(percent) = line.strip_prefix("Active Threads Percentage set to ") {
            limits.percent = match replies::percent(percent) {
                Some(PercentDisplay::Tenths(percent)) => Some(percent),
                Some(PercentDisplay::BelowATenth) | None => None,
            };
        }
    }
    limits
}

/// The processes that the daemon has put on its pending list, the latest last, by `control.log`.
/// That one of them was served since isn't written there.
pub fn pending_clients(log: &str) -> impl Iterator<Item = NewClient> {
    let lines = log.lines().filter_map(parse_line).filter(|line| line.role == Role::Control);
    lines.filter_map(|line| {
        let (pid, rest) = line.text.strip_prefix("NEW CLIENT ")?.split_once(" from user ")?;
        let (uid, outcome) = rest.split_once(':')?;
        let is_pending = outcome.ends_with("push client to pending list");
        let client = NewClient { pid: Pid::new(pid.parse().ok()?)?, uid: uid.parse().ok()? };
        is_pending.then_some(client)
    })
}

/// A line of `control.log` that tells of somebody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlLine<'a> {
    /// A session sent a command, and the daemon did as it said, as far as is known.
    Command(&'a str),
    /// A process wants to be a client.
    Client(Pid),
}

/// What came to the daemon with this process id, in order. Commands that it refused for lack of
/// privilege are left out.
pub fn control_lines(log: &str, daemon: Pid) -> Vec<ControlLine<'_>> {
    let mut found = Vec::new();
    let of_daemon = |line: &LogLine<'_>| line.role == Role::Control && line.pid == daemon;
    for line in log.lines().filter_map(parse_line).filter(of_daemon) {
        if let Some(command) = line.text.strip_prefix("Cmd:") {
            found.push(ControlLine::Command(command));
        } else if is_refusal(line.text) && matches!(found.last(), Some(ControlLine::Command(_))) {
            found.pop();
        } else if let Some((pid, _)) =
            line.text.strip_prefix("NEW CLIENT ").and_then(|rest| rest.split_once(' '))
        {
            found.extend(pid.parse().ok().and_then(Pid::new).map(ControlLine::Client));
        }
    }
    found
}

fn is_refusal(text: &str) -> bool {
    text.starts_with("Insufficient privileges") || text.starts_with("Not enough privilege")
}

/// Why a server failed, in its own words: the latest in `server.log`.
pub fn server_failure(log: &str) -> Option<&str> {
    log.lines().rev().filter_map(parse_line).map(|line| line.text).find(|text| {
        text.starts_with("Driver initialization failed")
            || text.starts_with("Failed to start")
            || text.contains("failed to create/open SHM segment")
    })
}

fn of(log: &str, server: Pid) -> impl Iterator<Item = &str> {
    log.lines()
        .filter_map(parse_line)
        .filter(move |line| line.pid == server && line.role != Role::Control)
        .map(|line| line.text)
}

#[cfg(test)]
mod tests;
