//! NVIDIA's MPS control daemon of one card, driven as it really behaves.
//!
//! The port is [`ControlDaemon`]; [`ProcessDaemon`] is the real thing behind it. The rest of the
//! crate is what that needs: one front-end session at a time (`session`), replies as values
//! (`replies`), limits that are read back (`limits`), the lock that tells who lives (`lock`), the
//! ways of launching ([`Launcher`]), and what `/proc` and the logs say ([`procfs`], [`log`]).
//! What to run on which card is the supervisor's business, not this crate's. Everything
//! surprising in here comes from `facts/mps.md`.

mod canary;
pub mod census;
mod commands;
mod daemon;
mod error;
mod launch;
mod limits;
mod lock;
pub mod log;
mod pid;
pub mod procfs;
mod replies;
mod session;
mod site;

pub use canary::{CANARY, CanaryProgram, Depth, Flight, Sign};
pub use commands::{Deed, deed};
pub use daemon::{Adopted, ControlDaemon, Patience, ProcessDaemon, Server};
pub use error::{DaemonError, DaemonFault};
pub use launch::{
    DaemonSettings, HostEntry, LaunchError, Launcher, Obstacle, OnHost, OwnSession, Programs,
    SEARCHED, Users, missing_program,
};
pub use limits::{DaemonLimits, Defaults, LimitError, MemoryDisplay, PercentDisplay, PinnedLimit};
pub use pid::{Pid, ProcessId};
pub use procfs::{ContainerOf, Proc, ProcessHandle};
pub use replies::ServerStatus;
pub use site::{DaemonSite, PipeDirectory, SiteError};
