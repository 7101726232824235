//! The GPUs that aren't there: one directory that all fake programs and libraries share.
//!
//! `state.json` holds the whole truth (cards, processes on them, injected faults); `lock` is
//! flocked around every read-modify-write, and the file is replaced by rename, so a program killed
//! at any point leaves either the old state or the new one. Processes that have died are pruned
//! whenever the state is read: a killed client frees its memory, as the driver does it.
//!
//! Nothing under `crates/` may depend on this package.

pub mod model;
pub mod mps;
pub mod nodes;
mod peer;
pub mod proc_id;
pub mod shm;
pub mod store;
pub mod wire;

pub use model::{
    ComputeMode, Driver, Faults, Health, ProcessKind, SimGpu, SimProcess, SimState, Xid,
};
pub use proc_id::ProcId;
pub use store::{DEFAULT_DIR, Error, SIM_DIR_ENV, Store};
