//! What can go wrong with a control daemon, with its card and directory named.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use mpshare_core::GpuUuid;
use thiserror::Error;

use crate::launch::LaunchError;
use crate::limits::{DaemonLimits, Defaults};
use crate::pid::Pid;
use crate::site::DaemonSite;

/// Something went wrong with one card's control daemon.
#[derive(Debug, Error)]
#[error("MPS control daemon of `{gpu}` in `{}`: {fault}", .pipe.display())]
pub struct DaemonError {
    /// The card.
    pub gpu: GpuUuid,
    /// The daemon's pipe directory.
    pub pipe: PathBuf,
    /// What it is.
    #[source]
    pub fault: Box<DaemonFault>,
}

impl DaemonError {
    /// Names the card and directory of a fault.
    pub fn new(site: &DaemonSite, fault: DaemonFault) -> Self {
        Self { gpu: site.gpu.clone(), pipe: site.pipe.path().to_owned(), fault: Box::new(fault) }
    }
}

/// What went wrong with a control daemon.
#[derive(Debug, Error)]
pub enum DaemonFault {
    /// Nobody listens in the pipe directory.
    #[error("it isn't running")]
    NotRunning,
    /// It was to be started, but lives.
    #[error("it runs already, as process {0}")]
    AlreadyRunning(Pid),
    /// The live daemon was started by somebody else for something else.
    #[error("process {pid} isn't ours: its `{variable}` is {found}, not `{wanted}`")]
    Foreign {
        /// The live daemon.
        pid: Pid,
        /// The variable in its environment.
        variable: &'static str,
        /// What it says, in backticks, or that it isn't set.
        found: String,
        /// What ours would say.
        wanted: String,
    },
    /// Another process of a pid namespace that isn't ours holds the lock or is a client; its pid
    /// can't be known.
    #[error(
        "{what} is in another pid namespace; the supervisor and the daemon must be in the host's"
    )]
    OtherPidNamespace {
        /// Which process.
        what: &'static str,
    },
    /// Another front-end session was open all the time.
    #[error("another control session was open for {waited:?} ({attempts} attempts)")]
    Busy {
        /// How often it was tried.
        attempts: u32,
        /// For how long.
        waited: Duration,
    },
    /// A session got no answer in time.
    #[error("no answer to `{command}` within {waited:?}")]
    NoAnswer {
        /// The first command of the session.
        command: String,
        /// For how long.
        waited: Duration,
    },
    /// The daemon refuses a command.
    #[error("it refuses: `{0}`")]
    Refused(String),
    /// A reply that can't be understood.
    #[error("it answered `{reply}` to `{command}`")]
    UnknownReply {
        /// The first command of the session.
        command: String,
        /// What came back, lines joined by ` | `.
        reply: String,
    },
    /// Limits were set, but something else was read back.
    #[error("{} and {} % were set, but {found} read back", .wanted.memory, .wanted.percent)]
    NotApplied {
        /// What was set.
        wanted: DaemonLimits,
        /// What it shows.
        found: Defaults,
    },
    /// The daemon has no such server (any more).
    #[error("it has no server {0}")]
    NoSuchServer(Pid),
    /// The server isn't ready to answer.
    #[error("its server {0} is still initializing")]
    ServerInitializing(Pid),
    /// A client wasn't terminated.
    #[error("server {server} didn't terminate client {client}: `{reply}`")]
    NotTerminated {
        /// The server.
        server: Pid,
        /// The client.
        client: Pid,
        /// What it said.
        reply: String,
    },
    /// The daemon was to end, but didn't.
    #[error("process {pid} is still there after {waited:?}")]
    StillRunning {
        /// Who.
        pid: Pid,
        /// For how long it was waited.
        waited: Duration,
    },
    /// It was launched, but nobody took the lock.
    #[error("it was launched, but doesn't hold its lock after {waited:?}")]
    NoHolder {
        /// For how long it was waited.
        waited: Duration,
    },
    /// It couldn't be launched.
    #[error("launching it failed")]
    Launch(#[from] LaunchError),
    /// The front-end couldn't be run.
    #[error("running `{program}` failed: {message}")]
    FrontEnd {
        /// The front-end.
        program: String,
        /// What it, or the system, said.
        message: String,
    },
    /// A file or directory is in the way.
    #[error("{action} `{}` failed", .path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// `/proc` can't be read.
    #[error("{action} process {pid} failed")]
    Process {
        /// What was tried.
        action: &'static str,
        /// On whom.
        pid: Pid,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}
