//! The driver's view of a node's cards, and when one is ill.
//!
//! The port is [`GpuInventory`]; [`NvmlInventory`] is the adapter over NVIDIA's library, and the
//! only user of `nvml-wrapper`. Which events make a card ill ([`XidPolicy`]) and when it is well
//! again ([`HealthTracker`]) are pure. What follows from illness is the supervisor's business.

mod adapter;
mod error;
mod health;
mod inventory;
mod reopening;
mod xid;

pub use adapter::NvmlInventory;
pub use error::NvmlError;
pub use health::{Answer, Change, HealthTracker};
pub use inventory::{ComputeMode, EventKind, GpuInventory, GpuProcess, HealthEvent};
pub use reopening::ReopeningInventory;
pub use xid::XidPolicy;
