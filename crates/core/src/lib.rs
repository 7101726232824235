//! The rules of mpshare, as functions from values to values.
//!
//! What a share is, what a node should run and offer for a configuration, what a request for
//! device ids gets, and the sentence that says why not. No IO, no clock, no randomness, no hash
//! order, no serde, no Kubernetes types: every process on a node that calls these functions with
//! the same values gets the same answer, and that is what keeps them from drifting apart.
//!
//! | module | idea |
//! |---|---|
//! | [`memory`], [`percent`], [`gpu`], [`resource`], [`device_id`] | units and names with checked constructors |
//! | [`profile`] | what a driver version can do; client caps |
//! | [`config`] | which cards are cut into which units |
//! | [`share`] | what a container holds |
//! | [`plan`](mod@plan) | config x inventory x live shares -> what each card runs and offers |
//! | [`grant`](mod@grant) | device ids -> a share, or a reason |
//! | [`preference`] | which ids to hand out first |
//! | [`ledger`] | who has how much of which card in the cluster |
//! | [`placement`] | which card of a node a container goes to |
//! | [`admission`] | what a pod's spec may ask, and what of it is written anew |
//! | [`reason`] | every refusal, one sentence each |

pub mod admission;
pub mod config;
pub mod device_id;
pub mod gpu;
pub mod grant;
pub mod ledger;
pub mod memory;
pub mod percent;
pub mod placement;
pub mod plan;
pub mod preference;
pub mod profile;
pub mod reason;
pub mod resource;
pub mod share;
#[cfg(test)]
mod testing;

pub use config::{
    AllocationPolicy, Cut, DeviceSelector, Drain, LargeRequests, MemoryUnits, NodeConfig,
    SharedResource,
};
pub use device_id::DeviceId;
pub use gpu::{ComputeCapability, Gpu, GpuUuid, Inventory, MigMode};
pub use grant::{Grant, grant};
pub use memory::Memory;
pub use percent::ThreadPercent;
pub use plan::{Generation, GpuPlan, Hosting, NodePlan, Unit, UnitKind, UnitState, plan};
pub use profile::{DriverVersion, VersionProfile};
pub use reason::Reason;
pub use resource::ResourceName;
pub use share::{Limits, LiveShare, Mode, Share};
