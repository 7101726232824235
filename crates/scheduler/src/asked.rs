//! What the pods want about which kube-scheduler has asked.
//!
//! It asks about a pod and then has it bound, so that pods which wait needn't be watched: in a
//! cluster with many, that would be most of the extender's work and of the API server's for it.
//! What isn't here any more is asked of the API server.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use mpshare_core::ledger::{Demand, PodUid};

/// More than are asked about between a pod's filter and its bind.
const MOST: usize = 10_000;

/// The newest answer about each pod.
#[derive(Debug, Default)]
pub(crate) struct Asked(Mutex<BTreeMap<PodUid, Demand>>);

impl Asked {
    /// Keeps what a pod asks for.
    pub(crate) fn note(&self, uid: &str, demand: &Demand) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(PodUid(uid.to_owned()), demand.clone());
    }

    /// Gives it back, for the bind.
    pub(crate) fn take(&self, uid: &PodUid) -> Option<Demand> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_is_kept_for_one_bind_and_not_without_bound() {
        let asked = Asked::default();
        for n in 0..=MOST {
            asked.note(&n.to_string(), &Demand::default());
        }
        let last = PodUid(MOST.to_string());
        assert_eq!(asked.take(&last), Some(Demand::default()));
        assert_eq!(asked.take(&last), None);
        assert_eq!(asked.take(&PodUid("0".to_owned())), None);
    }
}
