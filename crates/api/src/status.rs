//! `status.json`: what the supervisor found, did and verified.

use std::path::PathBuf;

use mpshare_core::{
    ComputeCapability, Gpu, Inventory, Limits, Memory, MigMode, Reason, ThreadPercent,
};
use serde::{Deserialize, Serialize};

use crate::GpuPaths;

/// The supervisor's report. Amounts of memory are MiB, percentages tenths (500 = 50 %).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Format of this document.
    pub version: u32,
    /// The name of the config that the report is about; empty while there is none.
    pub config: String,
    /// The driver's version.
    pub driver: String,
    /// What daemons, servers and clients share as `/dev/shm`.
    #[serde(default)]
    pub shared_memory: SharedMemory,
    /// The cards in index order.
    pub gpus: Vec<GpuStatus>,
    /// Which former owners of units still have processes.
    #[serde(default)]
    pub former_pods: FormerPods,
    /// What keeps the node as a whole from working, or parts of its config from taking hold.
    pub reasons: Vec<ReasonText>,
}

impl crate::Versioned for NodeStatus {
    const VERSION: u32 = Self::VERSION;

    fn version(&self) -> u32 {
        self.version
    }
}

impl NodeStatus {
    /// The format that this program writes.
    pub const VERSION: u32 = 1;

    /// Looks a card up.
    pub fn gpu(&self, uuid: &str) -> Option<&GpuStatus> {
        self.gpus.iter().find(|gpu| gpu.uuid == uuid)
    }

    /// The inventory that the report was made from, so that its readers plan with the very same
    /// one and need no driver library. `None` when a field isn't what it should be.
    pub fn inventory(&self) -> Option<Inventory> {
        let gpus = self.gpus.iter().map(GpuStatus::gpu).collect::<Option<Vec<_>>>()?;
        Some(Inventory { driver: self.driver.parse().ok()?, gpus })
    }
}

/// What was found when processes of pods were looked for that held units before.
///
/// Any process counts, also one that doesn't use a card yet: the kubelet frees a force-deleted
/// pod's units before its processes are gone (facts/kubernetes.md 9), and one that opens its card
/// late would meet its successor there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FormerPods {
    /// [`crate::Allocations::revision`] that was read before the look.
    pub revision: u64,
    /// UIDs of those that have processes.
    pub alive: Vec<String>,
}

/// What the servers of a node have at `/dev/shm`, and so what their clients must have there:
/// MPS keeps shared memory in it (facts/mps.md 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SharedMemory {
    /// A directory of each card's own.
    #[default]
    PerCard,
    /// The host's: daemons that were launched without a mount namespace of their own.
    Host,
}

impl SharedMemory {
    /// The directory that a card's clients get as `/dev/shm`.
    pub fn directory(self, paths: &GpuPaths) -> PathBuf {
        match self {
            Self::PerCard => paths.shm(),
            Self::Host => PathBuf::from("/dev/shm"),
        }
    }
}

/// One card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuStatus {
    /// Identity.
    pub uuid: String,
    /// NVML's index.
    pub index: u32,
    /// The N of `/dev/nvidiaN`.
    pub minor: u32,
    /// Product name.
    pub model: String,
    /// Total memory.
    pub memory_mib: u64,
    /// CUDA compute capability, for example `[7, 5]`.
    pub compute_capability: (u32, u32),
    /// MIG: `null` when the card can't.
    pub mig: Option<bool>,
    /// NUMA node.
    pub numa_node: Option<u32>,
    /// Whether containers can be started on it.
    pub state: GpuState,
    /// Why not, or what is pending.
    pub reason: Option<ReasonText>,
    /// The generation that state and limits belong to, see [`mpshare_core::Generation`].
    pub generation: String,
    /// What runs for the card; `None` while a whole card is handed out, or nothing is.
    pub daemon: Option<DaemonStatus>,
    /// The processes on a card that is handed out whole.
    #[serde(default)]
    pub processes: Vec<ClientStatus>,
    /// What processes use that have no share of the card, as far as they are told of.
    #[serde(default)]
    pub outside_mib: u64,
    /// What processes on the card do that they shouldn't, and what was done about it. The card is
    /// in service all the same.
    #[serde(default)]
    pub findings: Vec<ReasonText>,
}

/// Where a card is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum GpuState {
    /// The card doesn't answer.
    Absent,
    /// Its daemon is being started, adopted or verified.
    Starting,
    /// What the generation asks for runs, and its limits are verified.
    Ready,
    /// It is being emptied.
    Draining,
    /// Something broke; see the reason.
    Fault,
    /// The card can't do what the config asks of it.
    Refused,
}

impl std::fmt::Display for GpuState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self, f)
    }
}

/// The card's MPS control daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonStatus {
    /// PID on the host.
    pub pid: i32,
    /// Host path of the pipe directory.
    pub pipe_directory: String,
    /// PID of its server, while there is one.
    pub server: Option<i32>,
    /// The limits as read back from the daemon; `None` until then, and while it doesn't answer.
    pub limits: Option<LimitsStatus>,
    /// Its clients.
    pub clients: Vec<ClientStatus>,
}

/// Verified limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitsStatus {
    /// Pinned memory limit of a client without one of its own.
    pub memory_mib: u64,
    /// Active thread percentage of such a client, in tenths.
    pub percent_tenths: u32,
}

impl LimitsStatus {
    /// The limits, unless they are nonsense.
    pub fn limits(self) -> Option<Limits> {
        let percent = ThreadPercent::from_tenths(self.percent_tenths).ok()?;
        Some(Limits { memory: Memory::from_mib(self.memory_mib), percent })
    }
}

impl From<Limits> for LimitsStatus {
    fn from(limits: Limits) -> Self {
        Self { memory_mib: limits.memory.mib(), percent_tenths: limits.percent.tenths() }
    }
}

/// One process that uses a card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientStatus {
    /// PID on the host.
    pub pid: i32,
    /// Memory in use, where NVML tells.
    pub memory_mib: Option<u64>,
    /// UID of its pod, read from its cgroup.
    pub pod_uid: Option<String>,
    /// Id of its container as the runtime has it, read from its cgroup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_id: Option<String>,
}

/// A [`Reason`] as it crosses a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasonText {
    /// [`Reason::code`].
    pub code: String,
    /// The sentence.
    pub message: String,
    /// UIDs, as cgroups show them, of the pods that it concerns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<String>,
}

impl ReasonText {
    /// A reason that concerns these pods.
    pub fn about(reason: &Reason, pods: impl IntoIterator<Item = String>) -> Self {
        let (code, message) = (reason.code().to_owned(), reason.to_string());
        Self { code, message, pods: pods.into_iter().collect() }
    }
}

impl From<&Reason> for ReasonText {
    fn from(reason: &Reason) -> Self {
        Self::about(reason, [])
    }
}

impl GpuStatus {
    /// Whether containers that have shares of the card may start: those on a card that is being
    /// emptied keep what they have, and so may be started again.
    pub fn serves_holders(&self) -> bool {
        let is_draining = |reason: &ReasonText| reason.code == Reason::CARD_DRAINING;
        match self.state {
            GpuState::Ready => true,
            GpuState::Draining => self.reason.as_ref().is_some_and(is_draining),
            GpuState::Absent | GpuState::Starting | GpuState::Fault | GpuState::Refused => false,
        }
    }

    /// Everybody who uses the card through what was granted: MPS clients, or the processes on a
    /// whole card.
    pub fn users(&self) -> impl Iterator<Item = &ClientStatus> {
        self.daemon.iter().flat_map(|daemon| &daemon.clients).chain(&self.processes)
    }

    /// The card's facts; `None` when its UUID isn't one.
    pub fn gpu(&self) -> Option<Gpu> {
        let (major, minor) = self.compute_capability;
        Some(Gpu {
            uuid: self.uuid.parse().ok()?,
            index: self.index,
            minor: self.minor,
            model: self.model.clone(),
            memory: Memory::from_mib(self.memory_mib),
            compute_capability: ComputeCapability { major, minor },
            mig: match self.mig {
                None => MigMode::Unsupported,
                Some(false) => MigMode::Disabled,
                Some(true) => MigMode::Enabled,
            },
            numa_node: self.numa_node,
        })
    }

    /// A report on a card about which nothing but its facts is known yet.
    pub fn starting(gpu: &Gpu) -> Self {
        Self {
            uuid: gpu.uuid.to_string(),
            index: gpu.index,
            minor: gpu.minor,
            model: gpu.model.clone(),
            memory_mib: gpu.memory.mib(),
            compute_capability: (gpu.compute_capability.major, gpu.compute_capability.minor),
            mig: match gpu.mig {
                MigMode::Unsupported => None,
                MigMode::Disabled => Some(false),
                MigMode::Enabled => Some(true),
            },
            numa_node: gpu.numa_node,
            state: GpuState::Starting,
            reason: None,
            generation: String::new(),
            daemon: None,
            processes: Vec::new(),
            outside_mib: 0,
            findings: Vec::new(),
        }
    }
}
