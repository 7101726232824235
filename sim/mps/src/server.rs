//! The MPS server: one actor that owns the clients, fed by threads that only read connections.
//!
//! It puts itself on its cards in the simulated node, asks the control daemon for its settings,
//! and then serves until it is told to leave and its last client is gone. If the daemon dies it
//! stays, an orphan.

mod cards;
mod client;
mod command;
mod fault;

use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use mpshare_sim_state::mps::{Hello, Percent, ServerCommand, ServerReply, ServerSettings};
use mpshare_sim_state::shm::Segment;
use mpshare_sim_state::wire::Packets;
use mpshare_sim_state::{ProcId, Store};
use rustix::fd::OwnedFd;

use crate::files::Dirs;
use crate::log::ServerLog;
use crate::profile::Profile;
use crate::signals;
use cards::{Card, StartFailure};
use client::Client;
use fault::Watch;

/// How often the simulated node is looked at for a fault of a client.
const LOOK: Duration = Duration::from_millis(20);

/// What the reading threads report.
#[derive(Debug)]
pub(crate) enum Happening {
    /// The daemon asks, perhaps with a client's connection.
    Command(ServerCommand, Option<OwnedFd>),
    /// A client's connection ended.
    ClientGone(u64),
}

/// The running server.
#[derive(Debug)]
pub(crate) struct Server {
    id: ProcId,
    profile: Profile,
    store: Store,
    log: ServerLog,
    daemon: Packets,
    settings: ServerSettings,
    percent: Percent,
    cards: Vec<Card>,
    clients: Vec<Client>,
    next_key: u64,
    leaving: Leaving,
    watch: Watch,
    /// Clients that don't see it can't work; it goes with the server.
    _shared: Segment,
    happenings: Sender<Happening>,
}

/// Whether the server goes after its last client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaving {
    No,
    AfterLastClient,
}

/// What a start leads to.
#[derive(Debug)]
struct Started {
    daemon: Packets,
    settings: ServerSettings,
    cards: Vec<Card>,
    shared: Segment,
}

/// Runs the server with this process's environment.
pub fn run() -> ExitCode {
    signals::restore_defaults();
    let pipe_dir = Dirs::from_env().pipe;
    let log = ServerLog::open(&pipe_dir);
    match start(&pipe_dir.join("control"), &log) {
        Ok(started) => serve(log, started),
        Err(failure) => {
            log.say(format!("Driver initialization failed with: {failure}"));
            log.say(format!("Failed to start : {failure}"));
            ExitCode::FAILURE
        }
    }
}

/// Everything up to the settings; the daemon counts the server as INITIALIZING.
fn start(control: &Path, log: &ServerLog) -> Result<Started, StartFailure> {
    log.say("Startup");
    log.say(format!("Connecting to control daemon on socket: {}", control.display()));
    log.say("Initializing server process");
    let store = Store::from_env();
    cards::obey_start_faults(&store)?;
    let cards = cards::occupy(&store)?;
    for (index, card) in cards.iter().enumerate() {
        log.say(format!("Creating server context on device {index} ({})", card.name));
    }
    let daemon = Packets::connect(control).map_err(|_| StartFailure::NoDaemon)?;
    let shared = Segment::create().map_err(|_| StartFailure::NoSharedMemory)?;
    let uid = rustix::process::geteuid().as_raw();
    let pid = std::process::id();
    log.say(format!("Created named shared memory region /cuda.shm.{uid}.{pid}.1"));
    daemon.send(&Hello::Server).map_err(|_| StartFailure::NoDaemon)?;
    let settings = daemon.receive().ok().flatten().ok_or(StartFailure::NoDaemon)?;
    Ok(Started { daemon, settings, cards, shared })
}

fn serve(mut log: ServerLog, started: Started) -> ExitCode {
    let Started { daemon, settings, mut cards, shared } = started;
    let profile = Profile::current();
    log.become_role(cards::role(&cards));
    cards::apply_limits(&mut cards, profile, &settings.limits);
    log_settings(&log, profile, &settings, &cards);
    let (happenings, inbox) = mpsc::channel();
    let Ok(reader) = daemon.try_clone() else {
        return ExitCode::FAILURE;
    };
    let server = Server {
        id: ProcId::current(),
        profile,
        store: Store::from_env(),
        log,
        daemon,
        percent: Percent::parse(&settings.percent.to_string()).unwrap_or(Percent::FULL),
        settings,
        cards,
        clients: Vec::new(),
        next_key: 0,
        leaving: Leaving::No,
        watch: Watch::default(),
        _shared: shared,
        happenings: happenings.clone(),
    };
    if server.daemon.send(&ServerReply::Ready).is_err() {
        return ExitCode::FAILURE;
    }
    thread::spawn(move || read_commands(&reader, &happenings));
    server.run(&inbox)
}

/// Ends with the daemon; the server doesn't.
fn read_commands(daemon: &Packets, happenings: &Sender<Happening>) {
    while let Ok(Some((command, fd))) = daemon.receive_with() {
        if happenings.send(Happening::Command(command, fd)).is_err() {
            return;
        }
    }
}

fn log_settings(log: &ServerLog, profile: Profile, settings: &ServerSettings, cards: &[Card]) {
    if let Some(version) = profile.binary_version() {
        log.say(format!("CUDA MPS Server for Linux/Unix. Binary version: {version}"));
    }
    log.say(format!("Active Threads Percentage set to {:.1}", settings.percent));
    for (index, card) in cards.iter().enumerate() {
        if let Some(limit) = card.limit {
            log.say(format!(
                "Device pinned memory limit for device {index} set to {:#x} bytes",
                limit.bytes()
            ));
        }
    }
    log.say(format!("Server Priority set to {}", settings.priority));
    log.say("Server has started");
}

impl Server {
    fn run(mut self, inbox: &Receiver<Happening>) -> ExitCode {
        loop {
            match inbox.recv_timeout(LOOK) {
                Ok(Happening::Command(command, fd)) => self.obey(command, fd),
                Ok(Happening::ClientGone(key)) => self.client_gone(key),
                Err(RecvTimeoutError::Timeout) => {}
                // Can't happen while the server holds a sender.
                Err(RecvTimeoutError::Disconnected) => return ExitCode::FAILURE,
            }
            self.glance_for_fault();
            if self.leaving == Leaving::AfterLastClient && self.clients.is_empty() {
                return ExitCode::SUCCESS;
            }
        }
    }
}
