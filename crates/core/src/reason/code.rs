//! The stable code of each reason, to be added with its variant and a row of `docs/operations.md`.

use super::Reason;

/// Each code is its variant's name, so that a list of them can't lack one.
macro_rules! codes {
    ($($variant:ident)*) => {
        impl Reason {
            /// All codes, in the order of the variants.
            pub const CODES: &[&str] = &[$(stringify!($variant)),*];

            /// The stable code, in the form of a condition's `reason`. Renaming a variant breaks
            /// people's alerts.
            pub const fn code(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => stringify!($variant),)*
                }
            }
        }
    };
}

codes! {
    AboveClientCap
    UnitTooSmall
    UnitAboveCard
    DeviceListTooLong
    MigEnabled
    NoMemoryIsolation
    SelectedTwice
    SameDirectory
    NothingSelected
    DriverTooOld
    WaitingForShares
    WaitingForClients
    UnitsNotBacked
    NoClientLeft
    CardDraining
    CardEmptied
    CardDrained
    NotEnoughLeft
    SpansGpus
    OneUnitOnly
    UnknownDevice
    AnotherPlugin
    NoGpuFits
    NoUnits
    BadInventory
    SeveralGpusAsked
    TwoResources
    EmptyRequest
    ZeroUnits
    UnitsNotPlain
    AboveEveryGpu
    TwoResourcesInContainer
    DevicesNamed
    DevicesMounted
    CudaDevicesNamed
    MpsVariable
    HiddenVariable
    MemoryLimitUnreadable
    MemoryLimitForm
    MemoryLimitAboveShare
    SmallestShareWritten
    PercentUnreadable
    PercentAboveShare
    PrivilegedContainer
    MountOverShare
    HostPathOfGpus
    OwnUsers
    UsersDiffer
    AnnotationReserved
    NotRecorded
    GpuNotReady
    LimitsNotVerified
    FormerOwnerAlive
    ConfigMissing
    ConfigInvalid
    ConfigUnknown
    ConfigSourceMissing
    ConfigNotChosen
    ConfigNotWritten
    LabelsDisagree
    QgpuPresent
    DrainUnreadable
    DrainUnknownCards
    StatusMissing
    ForeignDaemon
    ForeignMps
    ForeignDaemonNearby
    ProgramMissing
    HostUnreachable
    DaemonFailed
    LimitMismatch
    ServerFault
    LingererEnded
    ServerWedged
    ServerLost
    ServerReplaced
    TamperedWith
    DaemonQuitting
    DriverChanged
    CardInUse
    UserWaits
    ShareExceeded
    ProcessEvicted
    OutsideShares
    OutsiderEnded
    NoServer
    ServerStuck
    ComputeModeDenied
    DriverUnavailable
    GpuLost
    Xid
}

impl Reason {
    /// The code of [`Reason::CardDraining`], for those who have the code alone.
    pub const CARD_DRAINING: &str = "CardDraining";

    /// The code of [`Reason::CardDrained`].
    pub const CARD_DRAINED: &str = "CardDrained";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_explains_every_code_and_no_other() {
        let text = include_str!("../../../../docs/operations.md");
        let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
        let is_code = |name: &&str| name.chars().all(|c| c.is_ascii_alphanumeric());
        let mut explained: Vec<&str> = rows.map(|(name, _)| name).filter(is_code).collect();
        let mut codes = Reason::CODES.to_vec();
        explained.sort_unstable();
        codes.sort_unstable();
        assert_eq!(explained, codes);
    }

    #[test]
    fn a_code_is_the_name_of_its_reason() {
        assert_eq!(Reason::EmptyRequest.code(), "EmptyRequest");
        assert_eq!(Reason::OneUnitOnly { asked: 2 }.code(), "OneUnitOnly");
        let gpu: crate::GpuUuid = "GPU-0a".parse().unwrap();
        let draining = Reason::CardDraining { gpu: gpu.clone(), shares: 1 };
        assert_eq!(draining.code(), Reason::CARD_DRAINING);
        assert_eq!(Reason::CardDrained { gpu }.code(), Reason::CARD_DRAINED);
    }
}
