//! The control daemon: one thread for each connection, one state under a lock.
//!
//! It never touches a card. It starts servers, hands clients over to them, and answers the one
//! front-end that may be open at a time.

mod command;
mod defaults;
mod exit;
mod link;
mod logging;
mod pending;
mod privilege;
mod server_command;
mod servers;
mod state;
mod ui;

use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use mpshare_sim_state::Store;
use mpshare_sim_state::mps::{Hello, UiReply};
use mpshare_sim_state::wire::{Packets, Peer};
use rustix::net::SocketFlags;

use crate::cli::Users;
use crate::files::{Dirs, OpenFiles};
use crate::log::ControlLog;
use crate::profile::Profile;
use defaults::Defaults;
use state::State;
use ui::Dice;

/// How the daemon was started.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) profile: Profile,
    pub(crate) users: Users,
    pub(crate) dirs: Dirs,
}

/// The running daemon.
#[derive(Debug)]
pub(crate) struct Daemon {
    options: Options,
    store: Store,
    files: OpenFiles,
    log: ControlLog,
    state: Mutex<State>,
    /// Told whenever a server goes or the daemon is to end.
    changed: Condvar,
    dice: Dice,
}

impl Daemon {
    pub(crate) fn new(options: Options, mut files: OpenFiles) -> Arc<Self> {
        let sink = std::mem::replace(&mut files.control_log, crate::log::Sink::Nowhere);
        let log = ControlLog::new(sink);
        let defaults = Defaults::from_env(&log);
        let daemon = Arc::new(Self {
            store: Store::from_env(),
            state: Mutex::new(State::new(defaults)),
            changed: Condvar::new(),
            dice: Dice::from_env(),
            options,
            files,
            log,
        });
        daemon.log_start();
        daemon
    }

    /// What the starter says about the logs.
    pub(crate) fn warning(&self) -> Option<&str> {
        self.files.warning.as_deref()
    }

    /// Serves until `quit`.
    pub(crate) fn serve(self: Arc<Self>) -> ExitCode {
        let server_log = self.copy_server_log();
        for listener in [&self.files.control, &self.files.privileged] {
            match listener.try_clone() {
                Ok(listener) => {
                    let daemon = Arc::clone(&self);
                    thread::spawn(move || daemon.accept(&listener));
                }
                Err(_) => return ExitCode::FAILURE,
            }
        }
        let status = self.wait_for_end();
        drop(server_log.map(thread::JoinHandle::join));
        self.say_goodbye(status)
    }

    fn log_start(&self) {
        if let Some(version) = self.options.profile.binary_version() {
            self.log.say(format!("CUDA MPS Control binary version: {version}"));
        }
        let dirs = &self.options.dirs;
        self.log.say(format!("Starting control daemon using socket {}", dirs.control().display()));
        self.log.say(format!(
            "To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY={}",
            dirs.pipe.display()
        ));
    }

    fn accept(self: &Arc<Self>, listener: &OwnedFd) {
        while let Ok(socket) = rustix::net::accept_with(listener.as_fd(), SocketFlags::CLOEXEC) {
            self.log.say("Accepting connection...");
            let daemon = Arc::clone(self);
            thread::spawn(move || daemon.greet(Packets::from_socket(socket)));
        }
    }

    /// Finds out who connected.
    fn greet(self: &Arc<Self>, connection: Packets) {
        let Ok(peer) = connection.peer() else {
            return;
        };
        if privilege::is_unmapped(peer) {
            return turn_away(&connection);
        }
        match connection.receive() {
            Ok(Some(Hello::Ui)) => self.open_ui(&connection, peer),
            Ok(Some(Hello::Client(request))) => self.new_client(connection, peer, request),
            Ok(Some(Hello::Server)) => self.register_server(connection, peer),
            // A client that only looks whether anybody is there (facts/mps.md 6.16).
            _ => self.log.say("User did not send valid credentials"),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The user that a client counts as.
    fn counted_uid(&self, peer: Peer) -> u32 {
        match self.options.users {
            Users::One => peer.uid,
            Users::Many => 0,
        }
    }
}

/// Serves a peer without a user: a front-end is told, a client waits until it gives up.
fn turn_away(connection: &Packets) {
    match connection.receive() {
        Ok(Some(Hello::Ui)) => {
            let text = "Cannot authenticate or connect to MPS control daemon process";
            let reply = UiReply::Busy { message: Some(text.to_owned()), code: 1 };
            // One that went away needs no word.
            drop(connection.send(&reply));
        }
        Ok(Some(Hello::Client(_))) => drop(connection.receive::<Hello>()),
        _ => {}
    }
}
