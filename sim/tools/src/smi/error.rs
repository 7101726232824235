//! What goes wrong, in the words and with the exit codes of the real program.

use std::process::ExitCode;

use nvml_wrapper::error::NvmlError;
use thiserror::Error;

/// The exit code of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitStatus(u8);

impl ExitStatus {
    /// All done.
    pub const SUCCESS: Self = Self(0);
    /// Anything without a number of its own.
    pub const FAILURE: Self = Self(1);
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        Self::from(status.0)
    }
}

/// Why there is no answer. The texts are the program's, so they look unlike ours.
#[derive(Debug, Error)]
pub enum Error {
    /// No driver: exit code 9.
    #[error(
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure \
         that the latest NVIDIA driver is installed and running.\n"
    )]
    NoDriver(#[source] NvmlError),
    /// No library: exit code 12.
    #[error(
        "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that \
         the NVIDIA Display Driver is properly installed and present in your system.\n\
         Please also try adding directory that contains libnvidia-ml.so to your system PATH."
    )]
    NoLibrary(#[source] NvmlError),
    /// The card can't be opened: NVML's exit code.
    #[error("Unable to determine the device handle for GPU {gpu}: {}", unreachable_text(.source))]
    Unreachable {
        /// As it was asked for.
        gpu: String,
        /// Why.
        source: NvmlError,
    },
    /// No such card: exit code 6.
    #[error("No devices were found")]
    NoDevice,
    /// The compute mode stays as it was: NVML's exit code.
    #[error(
        "Unable to set the compute mode for GPU {bus_id}: {}\n\
         Terminating early due to previous errors.",
        text(.source)
    )]
    ComputeMode {
        /// Of which card.
        bus_id: String,
        /// Why.
        source: NvmlError,
    },
    /// Not a compute mode: exit code 2.
    #[error("Invalid compute mode: {0}")]
    UnknownComputeMode(String),
    /// Not a field of a query: exit code 2.
    #[error("Field \"{0}\" is not a valid field to query.")]
    UnknownField(String),
    /// Not a format: exit code 2.
    #[error("\"--format=\" does not accept \"{0}\".")]
    UnknownFormat(String),
    /// Any other NVML error: its exit code.
    #[error("{}", text(.0))]
    Nvml(#[from] NvmlError),
}

impl Error {
    /// The error for a failed initialisation.
    pub fn starting(source: NvmlError) -> Self {
        if matches!(source, NvmlError::LibloadingError(_)) {
            Self::NoLibrary(source)
        } else {
            Self::NoDriver(source)
        }
    }

    /// How to exit.
    pub fn exit_status(&self) -> ExitStatus {
        ExitStatus(match self {
            Self::NoDriver(_) => 9,
            Self::NoLibrary(_) => 12,
            Self::NoDevice => 6,
            Self::UnknownComputeMode(_) | Self::UnknownField(_) | Self::UnknownFormat(_) => 2,
            Self::Unreachable { source, .. }
            | Self::ComputeMode { source, .. }
            | Self::Nvml(source) => code(source),
        })
    }
}

fn code(error: &NvmlError) -> u8 {
    match error {
        NvmlError::InvalidArg => 2,
        NvmlError::NotSupported => 3,
        NvmlError::NoPermission => 4,
        NvmlError::NotFound => 6,
        NvmlError::GpuLost => 15,
        _ => 255,
    }
}

fn text(error: &NvmlError) -> String {
    match error {
        NvmlError::NoPermission => "Insufficient Permissions".to_owned(),
        NvmlError::NotSupported => "Not Supported".to_owned(),
        NvmlError::GpuLost => "GPU is lost".to_owned(),
        other => other.to_string(),
    }
}

fn unreachable_text(error: &NvmlError) -> String {
    let is_lost = matches!(error, NvmlError::GpuLost);
    let hint = if is_lost { ".  Reboot the system to recover this GPU" } else { "" };
    format!("{}{hint}", text(error))
}
