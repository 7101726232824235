//! The port to the driver, and what passes through it.

use std::fmt;
use std::time::Duration;

use mpshare_core::{GpuUuid, Inventory, Memory};

use crate::error::NvmlError;

/// Who may open a context on a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ComputeMode {
    /// Any number of processes.
    Default,
    /// One process; an MPS server counts as one.
    ExclusiveProcess,
    /// None.
    Prohibited,
}

impl fmt::Display for ComputeMode {
    /// As `nvidia-smi` takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "DEFAULT",
            Self::ExclusiveProcess => "EXCLUSIVE_PROCESS",
            Self::Prohibited => "PROHIBITED",
        })
    }
}

/// A process with a context on a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct GpuProcess {
    /// Its id in the caller's pid namespace, which must be the host's.
    pub pid: i32,
    /// The memory that it uses on the card, where the driver tells.
    pub memory: Option<Memory>,
}

/// The driver reported something about a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthEvent {
    /// The card; `None` when the driver can't tell which: all are suspect.
    pub gpu: Option<GpuUuid>,
    /// What it is.
    pub kind: EventKind,
}

/// What the driver reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// A critical Xid, see [`crate::XidPolicy`].
    Xid(u64),
    /// The card doesn't answer any more.
    Lost,
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Xid(xid) => write!(f, "Xid {xid}"),
            Self::Lost => f.write_str("the card is lost"),
        }
    }
}

/// The driver of a node.
pub trait GpuInventory: Send + Sync {
    /// The driver and its cards, in index order.
    fn inventory(&self) -> Result<Inventory, NvmlError>;

    /// Whether a card answers: an error that [`NvmlError::is_lost`] says it doesn't.
    fn probe(&self, gpu: &GpuUuid) -> Result<(), NvmlError>;

    /// Who may use a card. `None` where cards have no compute mode (Tegra).
    fn compute_mode(&self, gpu: &GpuUuid) -> Result<Option<ComputeMode>, NvmlError>;

    /// Changes who may use a card, at once and for everybody; needs root.
    fn set_compute_mode(&self, gpu: &GpuUuid, mode: ComputeMode) -> Result<(), NvmlError>;

    /// The MPS clients of a card.
    fn mps_processes(&self, gpu: &GpuUuid) -> Result<Vec<GpuProcess>, NvmlError>;

    /// All processes with a compute context on a card, MPS servers among them.
    fn compute_processes(&self, gpu: &GpuUuid) -> Result<Vec<GpuProcess>, NvmlError>;

    /// The next event, or `None` after `timeout`. One caller at a time; a second one waits for its
    /// turn. Where no card can report events, this just takes its time.
    fn wait_for_event(&self, timeout: Duration) -> Result<Option<HealthEvent>, NvmlError>;
}
