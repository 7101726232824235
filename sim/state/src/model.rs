//! What the simulated node holds. Amounts of memory are MiB.

use serde::{Deserialize, Serialize};

use crate::ProcId;

/// Everything that the fake driver knows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SimState {
    /// The installed driver.
    pub driver: Driver,
    /// The cards, in NVML (PCI bus) order.
    pub gpus: Vec<SimGpu>,
    /// Every process that holds a context on a card, MPS servers included.
    pub processes: Vec<SimProcess>,
    /// Injected faults; all off by default.
    pub faults: Faults,
    /// Counts up; gives events and server numbers an order.
    pub sequence: u64,
    /// The PID namespace that the PIDs in here are of (an inode); `None` is the reader's own.
    pub pid_namespace: Option<u64>,
}

impl Default for SimState {
    fn default() -> Self {
        Self {
            driver: Driver { version: "555.58.02".to_owned(), cuda: "12.5".to_owned() },
            gpus: Vec::new(),
            processes: Vec::new(),
            faults: Faults::default(),
            sequence: 0,
            pid_namespace: None,
        }
    }
}

/// The driver's versions as NVML reports them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Driver {
    /// For example `555.58.02`.
    pub version: String,
    /// For example `12.5`.
    pub cuda: String,
}

/// One card.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SimGpu {
    /// `GPU-` and a UUID.
    pub uuid: String,
    /// The N of `/dev/nvidiaN`.
    pub minor: u32,
    /// Product name, for example `Tesla T4`.
    pub name: String,
    /// For example `00000000:00:07.0`.
    pub pci_bus_id: String,
    /// NVML's total memory.
    pub total_mib: u64,
    /// What the driver keeps for itself (part of the total).
    pub reserved_mib: u64,
    /// CUDA compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// Streaming multiprocessors of the whole card.
    pub sm_count: u32,
    /// `None`: the card can't do MIG.
    pub mig_enabled: Option<bool>,
    /// NUMA node, if the machine has one for it.
    pub numa_node: Option<u32>,
    /// Current compute mode.
    pub compute_mode: ComputeMode,
    /// Whether the driver stays loaded without a user; a state of a version before this field has
    /// it on.
    #[serde(default = "on")]
    pub persistence_mode: bool,
    /// Whether the card answers.
    pub health: Health,
    /// Xid events in the order in which they were raised; readers remember how far they got.
    pub xids: Vec<Xid>,
}

impl SimGpu {
    /// A card of a known product: `t4`, `v100`, `a100`, `p4`.
    pub fn of_model(model: &str, index: u32, uuid: &str) -> Option<Self> {
        let (name, total_mib, reserved_mib, compute_capability, sm_count, mig_enabled) = match model
        {
            "t4" => ("Tesla T4", 15360, 448, (7, 5), 40, None),
            "v100" => ("Tesla V100-SXM2-32GB", 32768, 268, (7, 0), 80, None),
            "a100" => ("NVIDIA A100-SXM4-40GB", 40960, 506, (8, 0), 108, Some(false)),
            "p4" => ("Tesla P4", 7680, 100, (6, 1), 20, None),
            _ => return None,
        };
        Some(Self {
            uuid: uuid.to_owned(),
            minor: index,
            name: name.to_owned(),
            pci_bus_id: format!("00000000:00:{:02X}.0", index + 7),
            total_mib,
            reserved_mib,
            compute_capability,
            sm_count,
            mig_enabled,
            numa_node: None,
            compute_mode: ComputeMode::Default,
            persistence_mode: on(),
            health: Health::Ok,
            xids: Vec::new(),
        })
    }
}

fn on() -> bool {
    true
}

/// `nvidia-smi -c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ComputeMode {
    /// Many processes.
    Default,
    /// No context at all.
    Prohibited,
    /// One process (the MPS server counts as one).
    ExclusiveProcess,
}

/// Whether a card answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// As it should be.
    Ok,
    /// Fallen off the bus: NVML answers `GPU_IS_LOST`, CUDA fails.
    Lost,
}

/// One Xid event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Xid {
    /// Position in the order of all events of the node.
    pub sequence: u64,
    /// NVIDIA's Xid number.
    pub xid: u32,
}

/// A process with a context on a card.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SimProcess {
    /// Who it is.
    pub id: ProcId,
    /// Its uid.
    pub uid: u32,
    /// What `nvidia-smi` shows.
    pub name: String,
    /// UUID of the card.
    pub gpu: String,
    /// How it reaches the card.
    pub kind: ProcessKind,
    /// Allocated memory, context included.
    pub used_mib: u64,
    /// The pinned memory limit in force; `None` is unlimited.
    pub limit_mib: Option<u64>,
    /// Active thread percentage in force, in tenths (1000 = 100 %).
    pub percent_tenths: u32,
    /// A CUDA error that every further call of this process gets.
    pub sticky_error: Option<i32>,
}

/// How a process reaches its card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessKind {
    /// Without MPS (`C` in `nvidia-smi`).
    Plain,
    /// As a client of an MPS server (`M+C`).
    MpsClient {
        /// PID of the server.
        server: i32,
    },
    /// An MPS server (`C`).
    MpsServer,
}

/// Injected faults, all off by default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "each switch is a fault of its own")]
pub struct Faults {
    /// NVML can't initialise: `DRIVER_NOT_LOADED`.
    pub driver_not_loaded: bool,
    /// Setting the compute mode is refused: `NO_PERMISSION`.
    pub compute_mode_denied: bool,
    /// Not a fault but the real driver's rule, off so that a simulated node works without root: only
    /// root changes the compute mode or the persistence mode.
    pub compute_mode_needs_root: bool,
    /// A new MPS server stays INITIALIZING for this long.
    pub server_start_delay_ms: u64,
    /// A new MPS server never leaves INITIALIZING.
    pub server_hangs_at_start: bool,
    /// A new MPS server exits with status 1.
    pub server_fails_at_start: bool,
    /// Each control command takes this long.
    pub ui_delay_ms: u64,
    /// `set_default_*` memory commands are accepted and do nothing.
    pub memory_limit_ignored: bool,
    /// PIDs of MPS servers that a client's fatal fault has put into FAULT.
    pub faulted_servers: Vec<i32>,
    /// PIDs of MPS servers that serve the clients that they have and leave new ones waiting, as after a
    /// client that was killed in the midst of its work (facts/mps.md 4.1).
    pub wedged_servers: Vec<i32>,
}
