//! `quit`: stops taking clients, waits for servers, and leaves what the real daemon leaves.

use std::fs;
use std::process::ExitCode;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use mpshare_sim_state::wire::Peer;

use super::state::{Life, Starts, State, Stay};
use super::{Daemon, privilege};

/// How a `quit` ended, for its front-end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Clean,
    Forced,
}

impl Daemon {
    /// Carries a `quit` out up to the last step, [`Daemon::end`]. The answer is the front-end's
    /// exit code, or a refusal.
    pub(super) fn quit(&self, peer: Peer, timeout: Option<u32>) -> Result<u8, String> {
        if !privilege::may_control(peer) {
            return Err("Not enough privilege to execute quit command\n".to_owned());
        }
        let seconds = timeout.unwrap_or(0);
        self.log.say(format!("quit command issued with timeout of {seconds}"));
        let mut state = self.lock();
        state.life = Life::Quitting;
        if let Some(server) = &mut state.server {
            server.stay = Stay::UntilLastClient;
            if let Some(link) = server.link() {
                drop(link.leave());
            }
        }
        drop(state);
        let end = self.wait_for_servers(timeout.map(|seconds| Duration::from_secs(seconds.into())));
        Ok(self.front_end_code(end, &self.lock()))
    }

    /// Not to be relied on (facts/mps.md 4.3): after a failed start it is 1 now and then.
    fn front_end_code(&self, end: End, state: &State) -> u8 {
        let unlucky = state.starts == Starts::OneFailed && self.dice.roll(100) < 20;
        u8::from(end == End::Forced || unlucky)
    }

    /// Waits without a limit, or until `timeout` and then kills.
    fn wait_for_servers(&self, timeout: Option<Duration>) -> End {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut end = End::Clean;
        let mut state = self.lock();
        while let Some(pid) = state.server.as_ref().map(|server| server.pid) {
            let left = match deadline {
                Some(deadline) if end == End::Clean => {
                    deadline.saturating_duration_since(Instant::now())
                }
                _ => Duration::MAX,
            };
            if left.is_zero() {
                self.log.say("Force shutting down server");
                Self::kill_server(pid);
                end = End::Forced;
                continue;
            }
            // A day, then again: no timer overflows.
            let left = left.min(Duration::from_hours(24));
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        end
    }

    /// Lets [`Daemon::serve`] go on to the end of the process.
    pub(super) fn end(&self) {
        self.end_server_log();
        let mut state = self.lock();
        state.life = Life::Over(u8::from(state.starts == Starts::OneFailed));
        self.changed.notify_all();
    }

    /// Waits until `quit` has finished.
    pub(super) fn wait_for_end(&self) -> u8 {
        let mut state = self.lock();
        loop {
            if let Life::Over(status) = state.life {
                return status;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The last acts of the process.
    pub(super) fn say_goodbye(&self, status: u8) -> ExitCode {
        // Already gone is what was wanted.
        drop(fs::remove_file(self.options.dirs.log_fifo()));
        if self.options.profile.writes_pid_file() {
            drop(fs::remove_file(self.options.dirs.pid_file()));
        }
        self.log.say(format!("Exit with status {status}"));
        ExitCode::from(status)
    }
}
