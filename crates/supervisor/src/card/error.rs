//! Why a look at a card or a step failed, and what people are told.

use std::path::PathBuf;

use mpshare_api::DocumentError;
use mpshare_core::{GpuUuid, Reason};
use mpshare_mps::{DaemonError, DaemonFault, LimitError, SiteError};
use mpshare_nvml::NvmlError;
use thiserror::Error;

/// Why a look or a step failed.
#[derive(Debug, Error)]
pub(crate) enum CardError {
    /// The card or the driver.
    #[error(transparent)]
    Nvml(#[from] NvmlError),
    /// The daemon.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// The compute mode can't be set.
    #[error("compute mode can't be set")]
    ComputeMode(#[source] NvmlError),
    /// The journal of compute modes.
    #[error("compute mode journal")]
    Journal(#[from] DocumentError),
    /// A directory of the card.
    #[error("directory `{path}`")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The MPS root is too long for a socket.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// No server holds the card.
    #[error("{0}")]
    Server(Reason),
    /// Step after step, and never where the plan wants it.
    #[error("something else keeps changing the card")]
    Unsteady,
    /// A limit that would mean no limit.
    #[error(transparent)]
    Limit(#[from] LimitError),
}

impl CardError {
    /// What people are told.
    pub(crate) fn reason(&self, gpu: &GpuUuid) -> Reason {
        if let Self::Server(reason) = self {
            return reason.clone();
        }
        let gpu = gpu.clone();
        if let Self::Daemon(error) = self
            && let DaemonFault::NotApplied { wanted, found } = &*error.fault
        {
            let wanted = format!("{} and {} %", wanted.memory, wanted.percent);
            return Reason::LimitMismatch { gpu, wanted, found: found.to_string() };
        }
        let problem = match self {
            // The reason names card and daemon itself.
            Self::Daemon(error) => chain(&error.fault),
            _ => chain(self),
        };
        if let Self::ComputeMode(source) = self {
            return Reason::ComputeModeDenied { gpu, problem: source.to_string() };
        }
        if matches!(self, Self::Nvml(error) if error.is_lost()) {
            return Reason::GpuLost { gpu, problem };
        }
        Reason::DaemonFailed { gpu, problem }
    }

    /// Whether this says nothing about the daemon's health: somebody else talks to it, or a server
    /// of it is coming or going.
    pub(crate) fn is_passing(&self) -> bool {
        let Self::Daemon(error) = self else {
            return false;
        };
        matches!(
            *error.fault,
            DaemonFault::Busy { .. }
                | DaemonFault::ServerInitializing(_)
                | DaemonFault::NoSuchServer(_)
        )
    }
}

/// An error with its causes, those that say something new.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}
