//! Replies of the control daemon as values. Pure; any text is read without a panic.
//!
//! Refusals come on stdout with exit code 0, and replies of several commands have nothing
//! between them (facts/mps.md 1.2), so each function knows exactly which lines its commands
//! produce and refuses everything else.

use std::fmt;

use mpshare_core::ThreadPercent;
use thiserror::Error;

use crate::limits::{Defaults, MemoryDisplay, PercentDisplay};
use crate::pid::Pid;

/// What a daemon says about one of its servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerStatus {
    /// It isn't ready yet; lists of it are empty, whatever it has.
    Initializing,
    /// It serves.
    Active,
    /// A client's fault holds all its clients; it takes no new ones until they have exited.
    Fault,
    /// A word that isn't known here.
    Other(String),
}

impl fmt::Display for ServerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Initializing => "INITIALIZING",
            Self::Active => "ACTIVE",
            Self::Fault => "FAULT",
            Self::Other(word) => word,
        })
    }
}

/// Why a reply is no answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum ReplyError {
    /// The daemon refuses, for lack of privilege or of the command.
    #[error("refused: `{0}`")]
    Refused(String),
    /// There is no such server.
    #[error("no server {0}")]
    NoSuchServer(Pid),
    /// The server is still initializing; what it says about itself means nothing.
    #[error("server {0} is initializing")]
    Initializing(Pid),
    /// A client with pid 0: it is in a pid namespace that the daemon can't see into.
    #[error("a client in another pid namespace")]
    OtherPidNamespace,
    /// Anything else that isn't the form of an answer.
    #[error("unknown reply: `{0}`")]
    Unknown(String),
}

/// A percentage in the daemon's form: always one decimal.
pub(crate) fn percent(line: &str) -> Option<PercentDisplay> {
    if line == "0.0" {
        return Some(PercentDisplay::BelowATenth);
    }
    let (_, decimal) = line.split_once('.')?;
    let percent: Option<ThreadPercent> = (decimal.len() == 1).then(|| line.parse().ok()).flatten();
    percent.map(PercentDisplay::Tenths)
}

/// A memory limit in the daemon's form: `7G` or `512M`.
pub(crate) fn memory(line: &str) -> Option<MemoryDisplay> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse().ok()).flatten()
    };
    if let Some(text) = line.strip_suffix('G') {
        number(text).map(MemoryDisplay::Gib)
    } else {
        number(line.strip_suffix('M')?).map(MemoryDisplay::Mib)
    }
}

/// The reply to the setting of both defaults and to reading the memory limit, followed by the
/// percentage of the sentinel.
pub(crate) fn applied(lines: &[String], sentinel: PercentDisplay) -> Result<Defaults, ReplyError> {
    refused(lines)?;
    let (echo, rest) = lines.split_first().ok_or_else(|| unknown(lines))?;
    if percent(echo) != Some(sentinel) {
        return Err(unknown(lines));
    }
    defaults(rest, sentinel).map_err(|_| unknown(lines))
}

/// The reply to reading the memory limit, followed by the percentage of the sentinel. No line
/// means that there is no limit.
pub(crate) fn defaults(lines: &[String], sentinel: PercentDisplay) -> Result<Defaults, ReplyError> {
    refused(lines)?;
    let memory = match lines {
        [] => None,
        [line] => Some(memory(line).ok_or_else(|| unknown(lines))?),
        _ => return Err(unknown(lines)),
    };
    Ok(Defaults { percent: sentinel, memory })
}

/// The reply to `get_server_list`.
pub(crate) fn server_list(lines: &[String]) -> Result<Vec<Pid>, ReplyError> {
    refused(lines)?;
    lines.iter().map(|line| pid(line).ok_or_else(|| unknown(lines))).collect()
}

/// The reply to `get_server_status`.
pub(crate) fn server_status(server: Pid, lines: &[String]) -> Result<ServerStatus, ReplyError> {
    refused(lines)?;
    found(server, lines)?;
    let [line] = lines else {
        return Err(unknown(lines));
    };
    match line.trim() {
        "INITIALIZING" => Ok(ServerStatus::Initializing),
        "ACTIVE" => Ok(ServerStatus::Active),
        "FAULT" => Ok(ServerStatus::Fault),
        word if !word.is_empty() && word.bytes().all(|b| b.is_ascii_uppercase() || b == b'_') => {
            Ok(ServerStatus::Other(word.to_owned()))
        }
        _ => Err(unknown(lines)),
    }
}

/// The reply to `get_client_list`.
///
/// Empty for a server that is initializing, whatever its clients: whoever needs to be sure asks
/// for the status too.
pub(crate) fn client_list(server: Pid, lines: &[String]) -> Result<Vec<Pid>, ReplyError> {
    refused(lines)?;
    found(server, lines)?;
    if lines.iter().any(|line| line.trim() == "0") {
        return Err(ReplyError::OtherPidNamespace);
    }
    server_list(lines)
}

/// The reply to `get_client_list` and then `get_server_status`.
pub(crate) fn client_list_and_status(
    server: Pid,
    lines: &[String],
) -> Result<Vec<Pid>, ReplyError> {
    refused(lines)?;
    found(server, lines)?;
    let (status, clients) = lines.split_last().ok_or_else(|| unknown(lines))?;
    match server_status(server, std::slice::from_ref(status))? {
        ServerStatus::Initializing => Err(ReplyError::Initializing(server)),
        ServerStatus::Active | ServerStatus::Fault | ServerStatus::Other(_) => {
            client_list(server, clients)
        }
    }
}

/// The reply to the setting of a server's percentage and memory limit and then reading both back.
///
/// Whether the setting commands echo isn't known of every driver: the last two lines are what
/// was read. Empty for a server that is initializing.
pub(crate) fn server_limits(server: Pid, lines: &[String]) -> Result<Defaults, ReplyError> {
    refused(lines)?;
    found(server, lines)?;
    let read = match lines {
        [] => return Err(ReplyError::Initializing(server)),
        [.., read_percent, read_memory] if memory(read_memory).is_some() => {
            percent(read_percent).map(|percent| (percent, memory(read_memory)))
        }
        [.., read_percent] => percent(read_percent).map(|percent| (percent, None)),
    };
    let (percent, memory) = read.ok_or_else(|| unknown(lines))?;
    Ok(Defaults { percent, memory })
}

/// The reply to `terminate_client`: `Ok` once it is done, else what it said.
pub(crate) fn terminated(server: Pid, lines: &[String]) -> Result<Result<(), String>, ReplyError> {
    refused(lines)?;
    found(server, lines)?;
    Ok(match lines {
        [line] if line.trim() == "0" => Ok(()),
        _ => Err(joined(lines)),
    })
}

/// The reply to `shutdown_server`, which says nothing when it is fine.
pub(crate) fn shut_down(server: Pid, lines: &[String]) -> Result<(), ReplyError> {
    found(server, lines)?;
    silent(lines)
}

/// The reply to a command that says nothing when all is well.
pub(crate) fn silent(lines: &[String]) -> Result<(), ReplyError> {
    refused(lines)?;
    if lines.is_empty() { Ok(()) } else { Err(unknown(lines)) }
}

/// Fails when a line refuses a command.
pub(crate) fn refused(lines: &[String]) -> Result<(), ReplyError> {
    let refusal = |line: &&String| {
        line.starts_with("Insufficient privileges")
            || line.starts_with("Not enough privilege")
            || line.starts_with("Unknown command ")
    };
    match lines.iter().find(refusal) {
        Some(line) => Err(ReplyError::Refused(line.clone())),
        None => Ok(()),
    }
}

/// Lines in one, for a message.
pub(crate) fn joined(lines: &[String]) -> String {
    lines.join(" | ")
}

fn found(server: Pid, lines: &[String]) -> Result<(), ReplyError> {
    let missing = format!("Server {server} not found");
    let is_missing = |line: &String| line.trim().trim_end_matches('!') == missing;
    if lines.iter().any(is_missing) {
        return Err(ReplyError::NoSuchServer(server));
    }
    Ok(())
}

fn pid(line: &str) -> Option<Pid> {
    let line = line.trim();
    let digits = line.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| line.parse().ok().and_then(Pid::new)).flatten()
}

fn unknown(lines: &[String]) -> ReplyError {
    ReplyError::Unknown(joined(lines))
}

#[cfg(test)]
mod tests;
