//! The driver API's result codes, with their names and texts.

use std::ffi::{CStr, c_int};

/// A `CUresult`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Status(pub(crate) c_int);

impl Status {
    pub(crate) const SUCCESS: Self = Self(0);
    pub(crate) const INVALID_VALUE: Self = Self(1);
    pub(crate) const OUT_OF_MEMORY: Self = Self(2);
    pub(crate) const NOT_INITIALIZED: Self = Self(3);
    pub(crate) const DEVICE_UNAVAILABLE: Self = Self(46);
    pub(crate) const NO_DEVICE: Self = Self(100);
    pub(crate) const INVALID_DEVICE: Self = Self(101);
    pub(crate) const INVALID_CONTEXT: Self = Self(201);
    pub(crate) const INVALID_HANDLE: Self = Self(400);
    pub(crate) const ILLEGAL_ADDRESS: Self = Self(700);
    pub(crate) const MPS_CONNECTION_FAILED: Self = Self(805);
    pub(crate) const UNKNOWN: Self = Self(999);

    /// The name of the enumerator; `None` for a number that isn't one.
    pub(crate) fn name(self) -> Option<&'static CStr> {
        self.entry().map(|(name, _)| name)
    }

    /// A sentence for people.
    pub(crate) fn text(self) -> Option<&'static CStr> {
        self.entry().map(|(_, text)| text)
    }

    fn entry(self) -> Option<(&'static CStr, &'static CStr)> {
        Some(match self.0 {
            0 => (c"CUDA_SUCCESS", c"no error"),
            1 => (c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
            2 => (c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
            3 => (c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error"),
            46 => (c"CUDA_ERROR_DEVICE_UNAVAILABLE", c"CUDA-capable device(s) is/are busy or unavailable"),
            100 => (c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected"),
            101 => (c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
            201 => (c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
            304 => (c"CUDA_ERROR_OPERATING_SYSTEM", c"OS call failed or operation not supported on this OS"),
            400 => (c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle"),
            700 => (c"CUDA_ERROR_ILLEGAL_ADDRESS", c"an illegal memory access was encountered"),
            719 => (c"CUDA_ERROR_LAUNCH_FAILED", c"unspecified launch failure"),
            800 => (c"CUDA_ERROR_NOT_PERMITTED", c"operation not permitted"),
            801 => (c"CUDA_ERROR_NOT_SUPPORTED", c"operation not supported"),
            805 => (c"CUDA_ERROR_MPS_CONNECTION_FAILED", c"MPS client failed to connect to the MPS control daemon or the MPS server"),
            806 => (c"CUDA_ERROR_MPS_RPC_FAILURE", c"the remote procedural call between the MPS server and the MPS client failed"),
            807 => (c"CUDA_ERROR_MPS_SERVER_NOT_READY", c"MPS server is not ready to accept new MPS client requests"),
            808 => (c"CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", c"the hardware resources required to create MPS client have been exhausted"),
            809 => (c"CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED", c"the hardware resources required to support device connections have been exhausted"),
            810 => (c"CUDA_ERROR_MPS_CLIENT_TERMINATED", c"the MPS client has been terminated by the server"),
            811 => (c"CUDA_ERROR_CDP_NOT_SUPPORTED", c"the program uses dynamic parallelism, but the current configuration, like MPS, doesn't support it"),
            812 => (c"CUDA_ERROR_CDP_VERSION_MISMATCH", c"the program contains an unsupported interaction between versions of dynamic parallelism"),
            999 => (c"CUDA_ERROR_UNKNOWN", c"unknown error"),
            _ => return None,
        })
    }
}
