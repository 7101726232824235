//! Who has shares of a card, as the device plugin's records say.

use mpshare_api::allocations::AllocationMode;
use mpshare_api::{Allocations, MpsRoot, read_versioned};
use mpshare_core::{GpuUuid, Memory};

/// The shares of one card, or of all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum KnownShares {
    /// There are no records that can be read: nothing can be said of anybody.
    #[default]
    Unknown,
    /// These and no others.
    These(Vec<HeldShare>),
}

/// A share that a container holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeldShare {
    pub gpu: String,
    pub mode: AllocationMode,
    pub memory: Memory,
    /// Its pod, once the kubelet has told.
    pub pod: Option<String>,
    /// Pods that had it before, and that the kubelet is ending.
    pub former: Vec<String>,
}

/// How a pod stands to a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It has a share, or had one and is ending.
    Holds,
    /// It may have one.
    Undecided,
    /// It has none.
    Outside,
}

impl KnownShares {
    /// Those that the records name; `None` where there is no file.
    pub(crate) fn of(records: Option<&Allocations>) -> Self {
        let Some(records) = records else { return Self::Unknown };
        let shares = records.records.iter().map(|record| HeldShare {
            gpu: record.gpu.clone(),
            mode: record.mode,
            memory: Memory::from_mib(record.memory_mib),
            pod: record.pod_uid.clone(),
            former: record.former_pods.clone(),
        });
        Self::These(shares.collect())
    }

    /// Those of one card.
    pub(crate) fn on(&self, gpu: &GpuUuid) -> Self {
        match self {
            Self::Unknown => Self::Unknown,
            Self::These(shares) => {
                let of_gpu = shares.iter().filter(|share| share.gpu == gpu.as_str());
                Self::These(of_gpu.cloned().collect())
            }
        }
    }

    /// Whether the file still says so of this card.
    pub(crate) fn are_still_so(&self, root: &MpsRoot, gpu: &GpuUuid) -> bool {
        let records = read_versioned::<Allocations>(&root.allocations());
        records.is_ok_and(|records| Self::of(records.as_ref()).on(gpu) == *self)
    }

    /// How a pod stands to the card.
    pub(crate) fn standing(&self, pod: &str) -> Standing {
        let Self::These(shares) = self else { return Standing::Undecided };
        let is_of = |share: &HeldShare| {
            share.pod.as_deref() == Some(pod) || share.former.iter().any(|former| former == pod)
        };
        if shares.iter().any(is_of) {
            Standing::Holds
        } else if shares.iter().any(|share| share.pod.is_none()) {
            Standing::Undecided
        } else {
            Standing::Outside
        }
    }
}

#[cfg(test)]
pub(crate) fn share(pod: Option<&str>, mib: u64) -> HeldShare {
    HeldShare {
        gpu: "GPU-ab".to_owned(),
        mode: AllocationMode::Mps,
        memory: Memory::from_mib(mib),
        pod: pod.map(ToOwned::to_owned),
        former: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_records_and_beside_a_record_without_a_pod_nothing_is_said_of_anybody() {
        assert_eq!(KnownShares::of(None).standing("a"), Standing::Undecided);
        let unowned = KnownShares::These(vec![share(Some("a"), 1), share(None, 1)]);
        assert_eq!(unowned.standing("a"), Standing::Holds);
        assert_eq!(unowned.standing("b"), Standing::Undecided);
        let nobody = KnownShares::of(Some(&Allocations::default()));
        assert_eq!(nobody.standing("b"), Standing::Outside);
    }

    #[test]
    fn a_pod_that_is_ending_is_no_outsider() {
        let former = HeldShare { former: vec!["b".to_owned()], ..share(Some("a"), 1) };
        let shares = KnownShares::These(vec![former]);
        assert_eq!(shares.standing("b"), Standing::Holds);
        assert_eq!(shares.standing("c"), Standing::Outside);
    }

    #[test]
    fn the_shares_of_another_card_say_nothing_of_this_one() {
        let shares = KnownShares::These(vec![share(Some("a"), 1)]);
        assert_eq!(shares.on(&"GPU-cd".parse().unwrap()).standing("a"), Standing::Outside);
        assert_eq!(shares.on(&"GPU-ab".parse().unwrap()).standing("a"), Standing::Holds);
    }
}
