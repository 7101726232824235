//! The words of a schedule: loads, changes of the config, faults.

use crate::simnode::Role;

/// One step of a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Beat {
    /// What is done.
    pub action: Action,
    /// How long nothing is done after it.
    pub pause_ms: u64,
}

/// Something that is done to the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// A pod or a process comes.
    Add(Load),
    /// A pod goes.
    Remove {
        /// Which, modulo their number.
        pod: usize,
        /// How.
        way: Removal,
    },
    /// Another config.
    Switch(Cut),
    /// A fault of a moment.
    Strike(Strike),
    /// A fault that lasts.
    Begin {
        /// The fault.
        fault: Lasting,
        /// For so many beats.
        beats: usize,
    },
}

/// What uses a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    /// A pod with a little memory.
    Small {
        /// So many units.
        units: usize,
    },
    /// A pod that takes all that its limit lets it have.
    Full,
    /// A pod of several processes, which may be past the share together.
    Several,
    /// A pod that dropped its limit (facts/mps.md 6.12).
    Unlimited,
    /// A pod that makes a fatal GPU fault when it is told to.
    Faulting,
    /// A pod that ends and is started again, all the time.
    Crashing,
    /// A pod that tries to get past MPS.
    Bypassing,
    /// A process of the node, past MPS.
    PlainOutsider,
    /// A process of the node, through a card's daemon.
    MpsOutsider {
        /// Whose.
        card: usize,
    },
}

/// How a pod is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Removal {
    /// With a grace period.
    Graceful,
    /// By force.
    Forced,
}

/// A config.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// So many equal shares.
    Replicas(usize),
    /// Units of a GiB.
    Memory,
    /// One that isn't there.
    Unknown,
}

/// A fault of a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Strike {
    Kill(Role),
    Terminate {
        roles: Vec<Role>,
    },
    KillDaemon {
        card: usize,
    },
    KillServer {
        card: usize,
    },
    FaultServer {
        card: usize,
    },
    FaultClient,
    Raise {
        card: usize,
        xid: Xid,
    },
    /// A container that is root sets other limits.
    TenantSetsLimits {
        card: usize,
    },
    Damage {
        file: File,
        how: Damage,
    },
    StaleFiles {
        card: usize,
    },
    FailRequests {
        count: usize,
        code: u16,
    },
    CloseWatches,
    BreakWatches,
    CompactHistory,
    RestartKubelet,
}

/// What the driver reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Xid {
    /// The card fell off the bus.
    Critical,
    /// A program did something wrong.
    OfProgram,
}

/// A fault that lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lasting {
    ServersHang,
    ServersFail,
    ServersDelay {
        ms: u64,
    },
    SlowUi {
        ms: u64,
    },
    NoDriver,
    ComputeModeDenied,
    LimitsIgnored,
    /// Clients that it has are served, and new ones wait.
    ServerWedged {
        card: usize,
    },
    /// A container that is root tells the daemon to end.
    TenantQuits {
        card: usize,
    },
    CardLost {
        card: usize,
    },
    DaemonStopped {
        card: usize,
    },
    ServerStopped {
        card: usize,
    },
    RoleStopped(Role),
    SessionOpen {
        card: usize,
    },
    ForeignDaemon {
        card: usize,
    },
    DiskFull(File),
    LogDiskFull {
        card: usize,
    },
    ApiAway,
    ApiSlow {
        ms: u64,
    },
    ApiStale,
}

/// A file at the MPS root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum File {
    Status,
    Allocations,
    Config,
    ComputeModes,
    BoundPods,
    Holdings,
    DevicePlugin,
}

/// What is put in a file's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Damage {
    Garbage,
    Empty,
    Huge,
    Fifo,
    Endless,
    Nowhere,
    Version,
    Gone,
}

impl Action {
    /// The kind of fault that this is.
    pub(super) fn fault(&self) -> Option<&'static str> {
        match self {
            Self::Strike(strike) => Some(strike.kind()),
            Self::Begin { fault, .. } => Some(fault.kind()),
            Self::Add(_) | Self::Remove { .. } | Self::Switch(_) => None,
        }
    }

    /// The card on which clients may be hurt by this. (Where [`Strike::FaultClient`] strikes is
    /// known only then; it passes over the spared card by itself.)
    #[cfg(test)]
    pub(super) fn hurts(&self) -> Option<usize> {
        match self {
            Self::Strike(strike) => strike.hurts(),
            Self::Begin { fault, .. } => fault.hurts(),
            Self::Add(_) | Self::Remove { .. } | Self::Switch(_) => None,
        }
    }
}

impl Strike {
    /// Its name in the report.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Kill(_) => "kill -9 of a role",
            Self::Terminate { .. } => "SIGTERM of roles",
            Self::KillDaemon { .. } => "kill -9 of a control daemon",
            Self::KillServer { .. } => "kill -9 of a server",
            Self::FaultServer { .. } => "server in FAULT",
            Self::FaultClient => "client with a fatal fault",
            Self::Raise { .. } => "Xid",
            Self::TenantSetsLimits { .. } => "limits set by a tenant",
            Self::Damage { .. } => "damaged file",
            Self::StaleFiles { .. } => "stale files in a pipe directory",
            Self::FailRequests { .. } => "API requests that fail",
            Self::CloseWatches => "watches closed",
            Self::BreakWatches => "watches broken",
            Self::CompactHistory => "history compacted",
            Self::RestartKubelet => "kubelet restart",
        }
    }

    /// The card whose clients it may hurt.
    pub(super) fn hurts(&self) -> Option<usize> {
        match self {
            Self::KillDaemon { card } | Self::KillServer { card } | Self::FaultServer { card } => {
                Some(*card)
            }
            _ => None,
        }
    }
}

impl Lasting {
    /// Its name in the report; of one kind there is one at a time.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::ServersHang => "servers hang at start",
            Self::ServersFail => "servers fail at start",
            Self::ServersDelay { .. } => "servers slow at start",
            Self::SlowUi { .. } => "slow control sessions",
            Self::NoDriver => "driver not loaded",
            Self::ComputeModeDenied => "compute mode denied",
            Self::LimitsIgnored => "limits accepted and not set",
            Self::ServerWedged { .. } => "server that takes nobody",
            Self::TenantQuits { .. } => "daemon told to quit by a tenant",
            Self::CardLost { .. } => "GPU lost",
            Self::DaemonStopped { .. } => "control daemon stopped",
            Self::ServerStopped { .. } => "server stopped",
            Self::RoleStopped(_) => "role stopped",
            Self::SessionOpen { .. } => "somebody's control session",
            Self::ForeignDaemon { .. } => "somebody's daemon on the card",
            Self::DiskFull(_) => "file that can't be written",
            Self::LogDiskFull { .. } => "server.log that can't be written",
            Self::ApiAway => "API server away",
            Self::ApiSlow { .. } => "API server slow",
            Self::ApiStale => "API server with stale lists",
        }
    }

    /// The card whose clients it may hurt.
    pub(super) fn hurts(self) -> Option<usize> {
        match self {
            Self::CardLost { card } | Self::ServerStopped { card } => Some(card),
            _ => None,
        }
    }
}

impl File {
    pub(super) const ALL: [Self; 7] = [
        Self::Status,
        Self::Allocations,
        Self::Config,
        Self::ComputeModes,
        Self::BoundPods,
        Self::Holdings,
        Self::DevicePlugin,
    ];

    /// Its name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Status => "status.json",
            Self::Allocations => "allocations.json",
            Self::Config => "config.yaml",
            Self::ComputeModes => "compute-modes.json",
            Self::BoundPods => "bound-pods.json",
            Self::Holdings => "holdings.json",
            Self::DevicePlugin => "device-plugin.json",
        }
    }

    /// Who writes it.
    pub(super) fn writer(self) -> Role {
        match self {
            Self::Status | Self::ComputeModes => Role::Supervisor,
            Self::Allocations | Self::Holdings | Self::DevicePlugin => Role::DevicePlugin,
            Self::Config | Self::BoundPods => Role::ConfigManager,
        }
    }
}

impl Damage {
    pub(super) const ALL: [Self; 8] = [
        Self::Garbage,
        Self::Empty,
        Self::Huge,
        Self::Fifo,
        Self::Endless,
        Self::Nowhere,
        Self::Version,
        Self::Gone,
    ];
}
