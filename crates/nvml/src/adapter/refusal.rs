//! The library's codes as our errors.

use std::path::Path;

use mpshare_core::GpuUuid;
use nvml_wrapper::error::NvmlError as Code;

use crate::error::NvmlError;

/// What was asked.
#[derive(Debug, Clone, Copy)]
pub(super) enum Subject<'a> {
    /// The loader, for the library.
    Library(&'a Path),
    /// The driver as a whole.
    Driver,
    /// A card whose UUID isn't known yet.
    Index(u32),
    /// A card.
    Gpu(&'a GpuUuid),
}

impl Subject<'_> {
    fn gpu(self) -> String {
        match self {
            Self::Library(_) | Self::Driver => "unknown".to_owned(),
            Self::Index(index) => format!("index {index}"),
            Self::Gpu(uuid) => uuid.to_string(),
        }
    }

    /// The action with the card that it was about.
    fn action(self, action: &str) -> String {
        match self {
            Self::Library(_) | Self::Driver => action.to_owned(),
            Self::Index(_) | Self::Gpu(_) => format!("{action} (GPU `{}`)", self.gpu()),
        }
    }
}

/// What a code means for what was tried.
pub(super) fn refusal(code: Code, subject: Subject<'_>, action: &str) -> NvmlError {
    match code {
        Code::LibloadingError(_) | Code::LibraryNotFound => NvmlError::LibraryNotFound {
            library: match subject {
                Subject::Library(path) => path.to_owned(),
                Subject::Driver | Subject::Index(_) | Subject::Gpu(_) => super::LIBRARY.into(),
            },
            message: code.to_string(),
        },
        // Without a driver everything but the start says "uninitialized" (facts/mps.md 5).
        Code::DriverNotLoaded | Code::Uninitialized => NvmlError::DriverNotLoaded,
        Code::LibRmVersionMismatch => NvmlError::VersionMismatch,
        Code::GpuLost => NvmlError::GpuLost { gpu: subject.gpu() },
        Code::ResetRequired => NvmlError::ResetRequired { gpu: subject.gpu() },
        Code::NoPermission => NvmlError::NoPermission { action: subject.action(action) },
        Code::NotSupported | Code::FailedToLoadSymbol(_) | Code::FunctionNotFound => {
            NvmlError::NotSupported { action: subject.action(action) }
        }
        other => NvmlError::Other { action: subject.action(action), message: other.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: Code, sentence: &str) {
        let gpu = "GPU-cb1213a3".parse().unwrap();
        let error = refusal(code, Subject::Gpu(&gpu), "read the memory");
        assert_eq!(error.to_string(), sentence);
    }

    #[test]
    fn codes_become_sentences() {
        check(Code::GpuLost, "GPU `GPU-cb1213a3` is lost: it doesn't answer the driver");
        check(
            Code::NoPermission,
            "no permission to read the memory (GPU `GPU-cb1213a3`); it takes root",
        );
        check(Code::Uninitialized, "the NVIDIA driver is not loaded");
        check(
            Code::Unknown,
            "the driver failed to read the memory (GPU `GPU-cb1213a3`): \
             an internal driver error occurred",
        );
    }

    #[test]
    fn a_lost_card_and_an_absent_driver_are_told_apart() {
        let lost = refusal(Code::GpuLost, Subject::Index(3), "read");
        assert!(lost.is_lost() && !lost.is_driver_away());
        let away = refusal(Code::DriverNotLoaded, Subject::Driver, "start");
        assert!(!away.is_lost() && away.is_driver_away());
    }
}
