//! What the supervisor is told, and what it is given to work with.

use std::sync::Arc;
use std::time::Duration;

use mpshare_api::{MpsRoot, SharedMemory};
use mpshare_core::{DriverVersion, VersionProfile};
use mpshare_mps::{ControlDaemon, DaemonSite, Obstacle, Proc};
use mpshare_nvml::GpuInventory;

/// Where it works, and when it looks.
#[derive(Debug, Clone)]
pub struct Options {
    /// The directory below which everything lies.
    pub root: MpsRoot,
    /// How often a worker looks at a card with clients or live shares.
    pub busy_interval: Duration,
    /// How often a worker looks at an idle card.
    pub idle_interval: Duration,
    /// How long a card must be free of critical Xids before its units come back.
    pub recovery: Duration,
    /// What is done about processes that use more than they were given.
    pub containment: ContainmentRules,
    /// How it is tried whether MPS servers take clients.
    pub canary: CanaryRules,
    /// How long a server may take to start, until it is replaced by another one.
    pub start_deadline: Duration,
    /// For how long clients that a fatal error hit may take to end by themselves.
    pub fault_grace: Duration,
}

/// How it is tried whether MPS servers take clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CanaryRules {
    /// One that takes none is found within this time; `None`: nobody tries.
    pub period: Option<Duration>,
    /// For how long one client of ours waits.
    pub deadline: Duration,
}

impl Default for CanaryRules {
    fn default() -> Self {
        Self { period: Some(Duration::from_mins(5)), deadline: Duration::from_secs(20) }
    }
}

/// What is done about processes that use more of a card than they were given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainmentRules {
    /// About those of a pod that use more than its share together.
    pub over_share: OverShare,
    /// About those that have no share.
    pub outsiders: Outsiders,
    /// How long it may last until something is done.
    pub grace: Duration,
}

impl Default for ContainmentRules {
    /// All is told and nobody ended.
    fn default() -> Self {
        let grace = Duration::from_secs(10);
        Self { over_share: OverShare::Warn, outsiders: Outsiders::Warn, grace }
    }
}

/// What is done about processes that use more than their share together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OverShare {
    /// It is told.
    Warn,
    /// The newest are ended, until the others fit.
    EvictProcess,
    /// All of the container are ended whose process is the newest.
    EvictContainer,
}

/// What is done about processes without a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outsiders {
    /// It is told.
    Warn,
    /// They are ended.
    Kill,
}

/// Drives the daemon of one site; the profile says what that daemon can do, the version of the
/// driver is what it is started under.
pub type DaemonDriver = dyn Fn(DaemonSite, VersionProfile, Option<&DriverVersion>) -> Box<dyn ControlDaemon>
    + Send
    + Sync;

/// The edges of the world.
#[derive(Clone)]
pub struct Ports {
    /// The cards.
    pub inventory: Arc<dyn GpuInventory>,
    /// Makes the driver of a control daemon.
    pub daemons: Arc<DaemonDriver>,
    /// What would keep any daemon from being launched now.
    pub obstacle: Arc<dyn Fn() -> Option<Obstacle> + Send + Sync>,
    /// What the daemons that these drivers launch have at `/dev/shm`.
    pub shared_memory: SharedMemory,
    /// Processes of this host.
    pub host_proc: Proc,
    /// Where the cgroups of GPU processes are read.
    pub cgroup_proc: Proc,
}
