//! A pod as its spec says it.

use std::collections::BTreeMap;

use super::affinity::Term;
use crate::ResourceName;
use crate::ledger::Stage;

/// A pod that somebody wants to create, or to which ephemeral containers are added.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subject {
    /// `spec.schedulerName`.
    pub scheduler: Option<String>,
    /// `spec.nodeName`.
    pub node: Option<String>,
    /// `spec.nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    /// The terms of the required node affinity, one of which has to be met; empty where there are
    /// none.
    pub node_terms: Vec<Term>,
    /// `hostUsers: false`.
    pub has_own_users: bool,
    /// `securityContext.runAsUser` of the pod.
    pub user: Option<i64>,
    /// The pod's label `aliyun.com/gpu-count`.
    pub gpu_count: Option<String>,
    /// Its volumes by name.
    pub volumes: BTreeMap<String, Volume>,
    /// All its containers.
    pub containers: Vec<Container>,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Volume {
    /// A path of the node.
    HostPath(String),
    /// Anything else.
    Other,
}

/// A list of containers in the spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum List {
    /// `initContainers`.
    Init,
    /// `containers`.
    Main,
    /// `ephemeralContainers`.
    Ephemeral,
}

/// Where a container is in the spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The list.
    pub list: List,
    /// The position in it.
    pub position: usize,
    /// Whether the container has a list of variables to which one can be added.
    pub has_env: bool,
}

/// A container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub place: Place,
    /// When it runs.
    pub stage: Stage,
    /// The units of our resources that it asks for.
    pub asked: Vec<Amount>,
    /// Its variables in their order. Of two with one name the last counts.
    pub env: Vec<EnvVar>,
    /// Whether it has more variables, of which admission doesn't see the names.
    pub has_env_from: bool,
    /// The paths of its mounts.
    pub mounts: Vec<String>,
    /// Whether it is privileged.
    pub is_privileged: bool,
    /// `securityContext.runAsUser` of the container.
    pub user: Option<i64>,
}

/// An amount of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Amount {
    /// Whose units.
    pub resource: ResourceName,
    /// How many; more than there can be where the text can't be read.
    pub units: u64,
    /// As the spec has it.
    pub text: String,
}

/// A variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvVar {
    /// Name.
    pub name: String,
    /// Value.
    pub value: Value,
}

/// A variable's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// This one.
    Text(String),
    /// `valueFrom`: known when the container starts.
    Elsewhere,
}

impl Container {
    /// Whether it asks for a resource of ours, if only for nothing of it.
    pub fn asks(&self) -> bool {
        !self.asked.is_empty()
    }

    /// The variable that counts of those with a name, and its position.
    pub fn variable(&self, name: &str) -> Option<(usize, &Value)> {
        let of_name = self.env.iter().enumerate().rev().find(|(_, it)| it.name == name);
        of_name.map(|(position, it)| (position, &it.value))
    }

    /// Whether it is there beside the pod's main containers.
    pub fn runs_on(&self) -> bool {
        matches!(self.stage, Stage::Main | Stage::Sidecar)
    }
}

impl Subject {
    /// Whether a container asks for a resource of ours.
    pub fn asks(&self) -> bool {
        self.containers.iter().any(Container::asks)
    }
}
