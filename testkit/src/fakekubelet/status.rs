//! What is to be seen of a pod: phase, reason and containers, as the kubelet reports them.

use std::collections::BTreeMap;

use mpshare_kubelet::device_plugin::{CdiDevice, DeviceSpec, Mount};

use super::pod::{ContainerKind, ContainerSpec, PodSpec};

/// Phase of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Not all containers have started once.
    Pending,
    /// All app containers have started; at least one runs or is going to be restarted.
    Running,
    /// All app containers exited with 0.
    Succeeded,
    /// The pod was rejected, or a container ended with another exit code.
    Failed,
}

impl Phase {
    /// The pod will never run again.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// State of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerState {
    /// It doesn't run and is going to.
    Waiting {
        /// `PodInitializing`, `ContainerCreating`, `CreateContainerConfigError`,
        /// `CrashLoopBackOff`.
        reason: String,
        /// Why, for people.
        message: String,
    },
    /// It runs.
    Running {
        /// Process id of its main process.
        pid: u32,
    },
    /// It has ended.
    Terminated {
        /// Exit code; 128 + signal for one that was killed.
        exit_code: i32,
    },
}

/// What the plugin's replies gave a container, merged.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunOptions {
    /// Environment.
    pub envs: BTreeMap<String, String>,
    /// Bind mounts.
    pub mounts: Vec<Mount>,
    /// Device nodes; nothing is done with them.
    pub devices: Vec<DeviceSpec>,
    /// Annotations; nothing is done with them.
    pub annotations: BTreeMap<String, String>,
    /// CDI devices; nothing is done with them.
    pub cdi_devices: Vec<CdiDevice>,
}

/// Status of one container.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerStatus {
    /// Which of the pod's lists it is in.
    pub kind: ContainerKind,
    /// Image name.
    pub image: String,
    /// State now.
    pub state: ContainerState,
    /// 64 hex digits, new at each start; empty before the first.
    pub id: String,
    /// How many times it was started again.
    pub restarts: u32,
    /// Exit code of the run before.
    pub last_exit: Option<i32>,
    /// What the plugin gave it at its latest start.
    pub options: RunOptions,
    /// Whole environment of its latest start, after path mapping.
    pub env: BTreeMap<String, String>,
}

/// Status of one pod.
#[derive(Debug, Clone, PartialEq)]
pub struct PodStatus {
    /// Phase.
    pub phase: Phase,
    /// Reason of a failure, such as `UnexpectedAdmissionError`.
    pub reason: Option<String>,
    /// Message of a failure.
    pub message: Option<String>,
    /// The kubelet has admitted the pod.
    pub admitted: bool,
    /// All containers have stopped and the pod was deleted: its API object goes now.
    pub gone: bool,
    /// Containers by name.
    pub containers: BTreeMap<String, ContainerStatus>,
}

impl PodStatus {
    pub(super) fn new(pod: &PodSpec) -> Self {
        let status = |container: &ContainerSpec| ContainerStatus {
            kind: container.kind,
            image: container.image.clone(),
            state: ContainerState::waiting("ContainerCreating", ""),
            id: String::new(),
            restarts: 0,
            last_exit: None,
            options: RunOptions::default(),
            env: BTreeMap::new(),
        };
        let named = |container: &ContainerSpec| (container.name.clone(), status(container));
        Self {
            phase: Phase::Pending,
            reason: None,
            message: None,
            admitted: false,
            gone: false,
            containers: pod.containers.iter().map(named).collect(),
        }
    }

    /// Process ids of the containers that run.
    pub fn pids(&self) -> BTreeMap<String, u32> {
        let running = self.containers.iter().filter_map(|(name, container)| {
            let pid = container.pid()?;
            Some((name.clone(), pid))
        });
        running.collect()
    }
}

impl ContainerStatus {
    /// Process id, if it runs.
    pub fn pid(&self) -> Option<u32> {
        match self.state {
            ContainerState::Running { pid } => Some(pid),
            ContainerState::Waiting { .. } | ContainerState::Terminated { .. } => None,
        }
    }

    /// Exit code, if it has ended.
    pub fn exit_code(&self) -> Option<i32> {
        match self.state {
            ContainerState::Terminated { exit_code } => Some(exit_code),
            ContainerState::Waiting { .. } | ContainerState::Running { .. } => None,
        }
    }

    /// It has been started at least once.
    pub(super) fn was_started(&self) -> bool {
        !self.id.is_empty()
    }
}

impl ContainerState {
    pub(super) fn waiting(reason: &str, message: &str) -> Self {
        Self::Waiting { reason: reason.into(), message: message.into() }
    }
}
