//! Places of pods that are gone, while another pod may be in them.
//!
//! Pods of equal size may have got each other's places, and until their node has said so
//! ([`super::PodFacts::is_confirmed`]) nobody here knows. When one of them goes, the place that is
//! free then may be any of theirs. So the one that it claimed stays taken until the others are known
//! to be where they claim to be.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::deadline::Deadline;
use super::{Claim, Demand, PodFacts, PodUid};

/// What is kept of a pod that is gone.
#[derive(Debug, Clone)]
pub(super) struct Departed {
    pub(super) demand: Demand,
    pub(super) claim: Claim,
    /// The pods that may be in its place.
    others: BTreeSet<PodUid>,
    /// It counts until then.
    until: Deadline,
}

/// All of one node.
#[derive(Debug, Clone, Default)]
pub(super) struct AllDeparted(BTreeMap<PodUid, Departed>);

impl AllDeparted {
    /// A pod leaves these others; `claim` is where it was believed to be.
    pub(super) fn leave(&mut self, pod: &PodFacts, claim: Claim, others: &[&PodFacts]) {
        if !pod.is_confirmed {
            let may_be_there = |other: &&&PodFacts| {
                !other.is_confirmed && are_of_a_size(&pod.demand, &other.demand)
            };
            let others: BTreeSet<PodUid> =
                others.iter().filter(may_be_there).map(|other| other.uid.clone()).collect();
            if !others.is_empty() {
                let departed = Departed {
                    demand: pod.demand.clone(),
                    claim,
                    others,
                    until: Deadline::default(),
                };
                self.0.insert(pod.uid.clone(), departed);
            }
        }
        self.clear(&pod.uid);
    }

    /// It is known where this pod is.
    pub(super) fn clear(&mut self, uid: &PodUid) {
        self.0.retain(|_, departed| {
            departed.others.remove(uid);
            !departed.others.is_empty()
        });
    }

    /// Forgets those whose time is over. Whether that has freed a place.
    pub(super) fn expire(&mut self, now: Duration) -> bool {
        let before = self.0.len();
        self.0.retain(|_, departed| !departed.until.is_over(now));
        self.0.len() < before
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&PodUid, &Departed)> {
        self.0.iter()
    }
}

/// Whether a container of one could have got the place of a container of the other.
fn are_of_a_size(one: &Demand, other: &Demand) -> bool {
    one.wishes().iter().any(|wish| {
        let is_like = |it: &super::Wish| it.units == wish.units && it.resource == wish.resource;
        other.wishes().iter().any(is_like)
    })
}
