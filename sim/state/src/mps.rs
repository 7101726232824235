//! The client's side of the simulated MPS, which the fake `libcuda` uses.
//!
//! [`attach`] does at `cuInit` what a CUDA program does: it connects to `<pipe dir>/control`, says
//! what its environment asks for, and waits. The control daemon finds or starts a server for the
//! caller's user and hands the open connection over to it; the server answers on it. So the one
//! connection of a [`Session`] tells everything later: it breaks when the server dies (806), and
//! the server writes into it when it terminates the client (810) or when a fatal fault of any
//! client hit the shared GPUs. Waiting has no deadline, as with the real one: a server that hangs
//! while it starts makes `cuInit` hang; a daemon that dies meanwhile ends the wait with 805. No
//! daemon at all is [`AttachError::NoDaemon`]: the program then runs without MPS and without
//! limits, silently (facts/mps.md 1.1). The caller keeps the session for the life of the process,
//! registers its contexts in the [`Store`](crate::Store) as `MpsClient { server }` with
//! [`CONTEXT_MIB`] each, holds allocations to [`SessionDevice::limit_mib`], and asks
//! [`Session::status`] (or [`Session::error`]) before each call.

mod error;
mod fault;
mod limit;
mod memory;
mod message;
mod percent;
mod session;

pub use error::AttachError;
pub use fault::raise_fault;
pub use limit::{effective_limits, visible_devices};
pub use memory::PinnedLimit;
pub use message::{
    Accepted, AttachRequest, Event, Hello, Refusal, Reply, ServedDevice, ServerCommand,
    ServerReply, ServerSettings, UiReply,
};
pub use percent::Percent;
pub use session::{Session, SessionDevice, SessionStatus, attach};

/// What one client context takes on its card, counted against the client's limit.
pub const CONTEXT_MIB: u64 = 312;

/// What the server itself takes on each of its cards.
pub const SERVER_MIB: u64 = 30;

/// The directory of the sockets when `CUDA_MPS_PIPE_DIRECTORY` isn't set.
pub const DEFAULT_PIPE_DIR: &str = "/tmp/nvidia-mps";
