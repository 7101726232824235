//! NVIDIA's MPS control daemon of one card, driven as it really behaves.
//!
//! The port is [`ControlDaemon`]; [`ProcessDaemon`] is the real thing behind it. The rest of the
//! crate is what that needs: one front-end session at a time ([`session`]), replies as values
//! ([`replies`]), limits that are read back ([`limits`]), the lock that tells who lives ([`lock`]),
//! the ways of launching ([`launch`]), and what `/proc` and the logs say ([`procfs`], [`log`]).
//! What to run on which card is the supervisor's business, not this crate's. Everything
//! surprising in here comes from `facts/mps.md`.

pub mod daemon;
pub mod error;
pub mod launch;
pub mod limits;
pub mod lock;
pub mod log;
pub mod pid;
pub mod procfs;
pub mod replies;
pub mod session;
pub mod site;

pub use daemon::{Adopted, ControlDaemon, Patience, ProcessDaemon, Server};
pub use error::{DaemonError, DaemonFault};
pub use launch::{LaunchError, Launcher, OwnSession, Programs};
pub use limits::{DaemonLimits, Defaults, LimitError, MemoryDisplay, PercentDisplay, PinnedLimit};
pub use pid::{Pid, ProcessId};
pub use procfs::{ContainerOf, Proc, ProcessHandle};
pub use replies::ServerStatus;
pub use session::Outcome;
pub use site::{DaemonSite, PipeDirectory, SiteError};
