//! Asking the daemon: turns, sessions, retries, and replies as values.

use std::time::{Duration, Instant};

use super::ProcessDaemon;
use crate::error::{DaemonError, DaemonFault};
use crate::limits::{DaemonLimits, Defaults, PercentDisplay};
use crate::pid::Pid;
use crate::replies::{self, ReplyError, ServerStatus};
use crate::session::{
    Exchange, Outcome, SENTINEL, Turn, TurnError, exchange, outcome, until_answered,
};

impl ProcessDaemon {
    /// Asks and reads the reply; an answer may take [`crate::Patience::answer`].
    pub(super) fn ask<T>(
        &self,
        commands: &[String],
        read: impl FnOnce(&[String], PercentDisplay) -> Result<T, ReplyError>,
    ) -> Result<T, DaemonError> {
        self.ask_within(self.patience.answer, commands, read)
    }

    /// Asks and reads the reply; an answer may take `patience`.
    pub(super) fn ask_within<T>(
        &self,
        patience: Duration,
        commands: &[String],
        read: impl FnOnce(&[String], PercentDisplay) -> Result<T, ReplyError>,
    ) -> Result<T, DaemonError> {
        let begin = Instant::now();
        let deadline = begin + self.patience.turn;
        let _turn = self.turn(deadline)?;
        let text = format!("{}\n{SENTINEL}\n", commands.join("\n"));
        let (outcome, attempts) = until_answered(deadline, || {
            self.exchange(&text, Instant::now() + patience).map(|exchange| outcome(&exchange))
        })?;
        let command = || commands.first().cloned().unwrap_or_default();
        let fault = match outcome {
            Outcome::Answered { lines, sentinel } => {
                return read(&lines, sentinel)
                    .map_err(|error| self.error(reply_fault(error, command())));
            }
            Outcome::NoDaemon => DaemonFault::NotRunning,
            Outcome::Busy => DaemonFault::Busy { attempts, waited: begin.elapsed() },
            Outcome::TimedOut => DaemonFault::NoAnswer { command: command(), waited: patience },
            Outcome::Failed(message) => self.front_end_fault(message),
        };
        Err(self.error(fault))
    }

    /// One session, whatever comes of it.
    pub(super) fn exchange(&self, text: &str, deadline: Instant) -> Result<Exchange, DaemonError> {
        let front_end = self.launcher.front_end(&self.site, &self.settings());
        exchange(front_end, text, deadline).map_err(|error| {
            self.error(DaemonFault::FrontEnd {
                program: error.program,
                message: error.source.to_string(),
            })
        })
    }

    /// The right to talk to the daemon, among our own processes.
    pub(super) fn turn(&self, deadline: Instant) -> Result<Turn, DaemonError> {
        let path = self.site.pipe.turn_file();
        Turn::take(&path, deadline).map_err(|error| match error {
            TurnError::File { path, source } => self.file_error("using", &path, source),
            TurnError::TimedOut { waited, .. } => {
                self.error(DaemonFault::Busy { attempts: 0, waited })
            }
        })
    }

    /// What the daemon says about a server, where its driver's can.
    pub(super) fn status(&self, server: Pid) -> Result<Option<ServerStatus>, DaemonError> {
        if !self.profile.has_server_status() {
            return Ok(None);
        }
        let command = format!("get_server_status {server}");
        self.ask(&[command], |lines, _| replies::server_status(server, lines)).map(Some)
    }

    pub(super) fn check(&self, wanted: DaemonLimits, found: Defaults) -> Result<(), DaemonError> {
        if found.shows(wanted) {
            return Ok(());
        }
        Err(self.error(DaemonFault::NotApplied { wanted, found }))
    }

    pub(super) fn front_end_fault(&self, message: String) -> DaemonFault {
        let front_end = self.launcher.front_end(&self.site, &self.settings());
        let program = front_end.get_program().to_string_lossy().into_owned();
        DaemonFault::FrontEnd { program, message }
    }
}

pub(super) fn reply_fault(error: ReplyError, command: String) -> DaemonFault {
    match error {
        ReplyError::Refused(reply) => DaemonFault::Refused(reply),
        ReplyError::NoSuchServer(server) => DaemonFault::NoSuchServer(server),
        ReplyError::Initializing(server) => DaemonFault::ServerInitializing(server),
        ReplyError::OtherPidNamespace => DaemonFault::OtherPidNamespace { what: "a client" },
        ReplyError::Unknown(reply) => DaemonFault::UnknownReply { command, reply },
    }
}
