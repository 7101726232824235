//! What a pod may ask for, and what of it is written anew, before it runs anywhere.
//!
//! Pure: a pod as its spec says it, the cards of the cluster and a policy go in; edits of the spec
//! ([`change()`]) and findings ([`judge`]) come out, each a [`Reason`](crate::Reason) that says what
//! to do. Whether a finding refuses the pod is the caller's to say. Nothing here makes a share hold:
//! the node does that. This is where a mistake is answered before it costs anybody.

mod affinity;
mod annotations;
mod change;
mod environment;
mod fleet;
mod judge;
mod subject;

#[cfg(test)]
mod tests;

pub use affinity::{Requirement, Rule, Term};
pub use annotations::{OWN_ANNOTATIONS, guard};
pub use change::{Changes, Edit, change};
pub use fleet::{Fleet, FleetCard, FleetNode};
pub use judge::judge;
pub use subject::{Amount, Container, EnvVar, List, Place, Subject, Value, Volume};

/// What the cluster's administrator has decided.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// The scheduler of pods that ask for units of memory and name none.
    pub scheduler_name: Option<String>,
    /// Whether a thread percentage above the share's is lowered to it.
    pub cap_percent: bool,
    /// Which privileged containers are findings.
    pub privileged: Privileged,
    /// Directories of nodes that are the driver's or ours: the driver root where that isn't `/`, the
    /// MPS root. `/run/nvidia` is one in any case.
    pub own_paths: Vec<String>,
    /// What `NVIDIA_VISIBLE_DEVICES` says in containers whose cards aren't named by it.
    pub visible_devices: Option<String>,
}

/// Which privileged containers are findings. Each of them reaches every card of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Privileged {
    /// None.
    Allowed,
    /// Those of pods that ask for units.
    #[default]
    WithUnits,
    /// All.
    All,
}
