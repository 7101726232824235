//! How a control daemon gets started, and where.

use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use thiserror::Error;

use crate::canary::{CanaryProgram, Depth};
use crate::site::{DaemonSite, SiteError};

mod obstacle;
mod on_host;
mod own_session;

pub use obstacle::{Obstacle, SEARCHED, missing_program};
pub use on_host::{HostEntry, OnHost};
pub use own_session::OwnSession;

/// Where the driver's programs and libraries are, as the daemon will see them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Programs {
    /// The directory of `nvidia-cuda-mps-control` and `nvidia-cuda-mps-server`. `None`: both are
    /// found through `PATH`.
    pub directory: Option<PathBuf>,
    /// Where `libcuda.so.1` is; empty: the loader knows.
    pub libraries: Vec<PathBuf>,
    /// A client for a moment; without it nobody can be told that new clients wait for ever.
    pub canary: Option<CanaryProgram>,
}

/// Starts control daemons and their front-ends in one place: the host, a unit, or right here.
pub trait Launcher: Send + Sync {
    /// Starts the daemon of `site` and returns once it listens. The daemon outlives the caller.
    /// `settings` are the variables and arguments that depend on the site and the driver.
    fn launch(
        &self,
        site: &DaemonSite,
        settings: &DaemonSettings,
        deadline: Duration,
    ) -> Result<(), LaunchError>;

    /// The front-end, ready to be run with commands on its stdin; its environment is complete.
    fn front_end(&self, site: &DaemonSite, settings: &DaemonSettings) -> Command;

    /// A client of the daemon, ready to be run; its environment is complete. `None` where there is
    /// no program for it.
    fn canary(&self, site: &DaemonSite, settings: &DaemonSettings, depth: Depth)
    -> Option<Command>;

    /// What would keep any daemon from being launched now; nothing is launched. It may take up to
    /// `deadline`.
    fn obstacle(&self, deadline: Duration) -> Option<Obstacle>;
}

/// The variable by which a daemon carries the version of the driver that it was started under.
pub(crate) const DRIVER: &str = "MPSHARE_DRIVER_VERSION";

/// What a daemon is started with, besides its place.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DaemonSettings {
    /// `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`: there from the first moment, before any command.
    pub percent: Option<mpshare_core::ThreadPercent>,
    /// Whether clients of several uids may share the server.
    pub users: Users,
    /// The driver's version: a daemon outlives it, and its servers then don't fit the driver.
    pub driver: Option<String>,
    /// `CUDA_MPS_PROTOCOL_VERSION`, for drivers that know more than one.
    pub protocol: Option<u32>,
}

/// Whose clients one server takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Users {
    /// One uid at a time; others wait in `cuInit` (facts/mps.md 3).
    #[default]
    One,
    /// All (`-multiuser-server`); root only, drivers from 555 on.
    All,
}

/// Why a daemon wasn't launched.
#[derive(Debug, Error)]
pub enum LaunchError {
    /// The pipe directory can't work.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// The program couldn't be run.
    #[error("can't run `{}`", .program.display())]
    Spawn {
        /// The program.
        program: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It ended with an error.
    #[error("`{} -d` ended with {status}: {message}", .program.display())]
    Failed {
        /// The program.
        program: PathBuf,
        /// How it ended.
        status: std::process::ExitStatus,
        /// What it said, stdout and stderr.
        message: String,
    },
    /// It didn't come back in time and was killed.
    #[error("`{} -d` wasn't ready within {waited:?}", .program.display())]
    TimedOut {
        /// The program.
        program: PathBuf,
        /// For how long.
        waited: Duration,
    },
}
