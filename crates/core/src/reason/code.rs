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
    DrainUnreadable
    DrainUnknownCards
    QgpuPresent
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
    }
}
