//! Why a client got no session, and the CUDA error that the program sees.

use std::io;

use thiserror::Error;

/// The CUDA driver's numbers (facts/mps.md 7).
pub(crate) mod code {
    pub(crate) const NOT_PERMITTED: i32 = 800;
    pub(crate) const CONNECTION_FAILED: i32 = 805;
    pub(crate) const RPC_FAILURE: i32 = 806;
    pub(crate) const SERVER_NOT_READY: i32 = 807;
    pub(crate) const MAX_CLIENTS: i32 = 808;
    pub(crate) const TERMINATED: i32 = 810;
}

/// Why a client got no session.
#[derive(Debug, Error)]
pub enum AttachError {
    /// Nobody listens in the pipe directory: the program runs without MPS.
    #[error("no control daemon answers")]
    NoDaemon(#[source] io::Error),
    /// The daemon couldn't get a server up, or died meanwhile.
    #[error("the control daemon gave no server")]
    ConnectionFailed,
    /// The server is in FAULT or cleans up.
    #[error("the server isn't ready")]
    ServerNotReady,
    /// The server has as many clients as the card can take.
    #[error("the server has its most clients")]
    MaxClients,
    /// The client was terminated before it got in.
    #[error("the client was terminated")]
    Terminated,
    /// The daemon doesn't serve this user.
    #[error("the control daemon doesn't serve this user")]
    NotPermitted,
}

impl AttachError {
    /// The error that `cuInit` returns; `None` means that it goes on without MPS.
    pub fn cuda_error(&self) -> Option<i32> {
        match self {
            Self::NoDaemon(_) => None,
            Self::ConnectionFailed => Some(code::CONNECTION_FAILED),
            Self::ServerNotReady => Some(code::SERVER_NOT_READY),
            Self::MaxClients => Some(code::MAX_CLIENTS),
            Self::Terminated => Some(code::TERMINATED),
            Self::NotPermitted => Some(code::NOT_PERMITTED),
        }
    }
}
