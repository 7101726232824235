//! What the driver library refuses, in plain sentences.

use std::path::PathBuf;

use mpshare_core::GpuUuid;
use mpshare_core::gpu::ParseUuidError;
use mpshare_core::profile::ParseDriverError;
use thiserror::Error;

/// Why the driver gave no answer.
#[derive(Debug, Error)]
pub enum NvmlError {
    /// There is no driver library.
    #[error("no NVIDIA driver library `{}`: {message}", .library.display())]
    LibraryNotFound {
        /// What was looked for.
        library: PathBuf,
        /// What the loader said.
        message: String,
    },
    /// The library is there, but the kernel module isn't.
    #[error("the NVIDIA driver is not loaded")]
    DriverNotLoaded,
    /// Library and kernel module are of different versions; a reboot or reload is due.
    #[error("the NVIDIA driver library and the kernel module are of different versions")]
    VersionMismatch,
    /// The card has fallen off the bus.
    #[error("GPU `{gpu}` is lost: it doesn't answer the driver")]
    GpuLost {
        /// Its UUID, or `index N`.
        gpu: String,
    },
    /// The card works again only after a reset.
    #[error("GPU `{gpu}` needs a reset")]
    ResetRequired {
        /// Its UUID, or `index N`.
        gpu: String,
    },
    /// No card has this UUID (any more).
    #[error("no GPU `{0}`")]
    NoSuchGpu(GpuUuid),
    /// Only root may do this.
    #[error("no permission to {action}; it takes root")]
    NoPermission {
        /// What was tried.
        action: String,
    },
    /// The card or the library can't do this.
    #[error("the driver can't {action}")]
    NotSupported {
        /// What was tried.
        action: String,
    },
    /// The driver reported a UUID that isn't one.
    #[error("the driver reported a card that can't be named")]
    Uuid(#[from] ParseUuidError),
    /// The driver reported a version that isn't one.
    #[error("the driver reported a version that can't be read")]
    Version(#[from] ParseDriverError),
    /// Anything else.
    #[error("the driver failed to {action}: {message}")]
    Other {
        /// What was tried.
        action: String,
        /// What the library said.
        message: String,
    },
}

impl NvmlError {
    /// Whether the card itself is gone for now, so that nothing on it can be trusted.
    pub const fn is_lost(&self) -> bool {
        matches!(self, Self::GpuLost { .. } | Self::ResetRequired { .. } | Self::NoSuchGpu(_))
    }

    /// Whether no card can be reached: the library has to be opened anew.
    pub const fn is_driver_away(&self) -> bool {
        matches!(self, Self::LibraryNotFound { .. } | Self::DriverNotLoaded | Self::VersionMismatch)
    }
}
