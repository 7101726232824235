//! What concerns single pods among what is said of cards, as Events on these pods: somebody who looks
//! at a pod that lost a process doesn't look at the Node.
//!
//! The supervisor names pods by the UIDs in cgroups; what they are called is known from the watch of
//! the node's pods, and for a while after they have gone: a process that was ended may have been
//! all that its pod had.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use mpshare_api::NodeStatus;
use mpshare_api::status::ReasonText;

use crate::allowance::Allowance;
use crate::announcement::{Announcement, Identity, Severity};
use crate::pods::PodName;

/// For so long a pod that has gone is remembered.
const REMEMBERED: Duration = Duration::from_mins(5);

/// So many of them.
const MOST_GONE: usize = 256;

/// So many Events at once on a pod, and then one per [`REFILL`].
const BURST: u32 = 4;
const REFILL: Duration = Duration::from_secs(30);

/// More pods than any node has: those past it have to wait until others have been quiet.
const MOST_TOLD: usize = 1024;

/// An Event for a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodAnnouncement {
    pub(crate) name: PodName,
    /// The kubelet's.
    pub(crate) uid: String,
    pub(crate) announcement: Announcement,
}

/// Who is called what, and what was said of them last.
#[derive(Debug, Default)]
pub(crate) struct PodAnnouncer {
    here: BTreeMap<String, PodName>,
    gone: BTreeMap<String, (Instant, PodName)>,
    said: BTreeSet<Said>,
    allowances: BTreeMap<String, Allowance>,
}

/// What makes something that is said of a pod another thing than last time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Said {
    gpu: String,
    pod: String,
    what: Identity,
}

impl PodAnnouncer {
    /// Takes in who is on the node now.
    pub(crate) fn update(&mut self, names: &BTreeMap<String, PodName>, now: Instant) {
        self.gone.retain(|uid, (since, _)| {
            now.saturating_duration_since(*since) < REMEMBERED && !names.contains_key(uid)
        });
        if self.here == *names {
            return;
        }
        for (uid, name) in std::mem::replace(&mut self.here, names.clone()) {
            if !names.contains_key(&uid) {
                self.gone.insert(uid, (now, name));
            }
        }
        while self.gone.len() > MOST_GONE {
            let first = self.gone.iter().min_by_key(|(_, (since, _))| *since);
            let Some(first) = first.map(|(uid, _)| uid.clone()) else { return };
            self.gone.remove(&first);
        }
    }

    /// What concerns pods that are known and wasn't said yet while it has been so. What a pod has no
    /// allowance for is said later, if it is so still.
    pub(crate) fn news(&mut self, status: &NodeStatus, now: Instant) -> Vec<PodAnnouncement> {
        self.allowances.retain(|_, allowance| !allowance.is_full(now));
        let (mut still, mut news) = (BTreeSet::new(), Vec::new());
        for gpu in &status.gpus {
            for reason in gpu.findings.iter().chain(&gpu.reason) {
                for pod in &reason.pods {
                    let what = Identity::of(reason);
                    let said = Said { gpu: gpu.uuid.clone(), pod: pod.clone(), what };
                    if still.contains(&said) {
                        continue;
                    }
                    if !self.said.contains(&said) {
                        let Some(new) = self.announce(pod, reason, now) else { continue };
                        news.push(new);
                    }
                    still.insert(said);
                }
            }
        }
        self.said = still;
        news
    }

    fn announce(
        &mut self,
        uid: &str,
        reason: &ReasonText,
        now: Instant,
    ) -> Option<PodAnnouncement> {
        let gone = || self.gone.get(uid).map(|(_, name)| name);
        let name = self.here.get(uid).or_else(gone)?.clone();
        if self.allowances.len() >= MOST_TOLD && !self.allowances.contains_key(uid) {
            return None;
        }
        let new = || Allowance::new(BURST, REFILL, now);
        self.allowances.entry(uid.to_owned()).or_insert_with(new).take(now)?;
        let announcement = Announcement {
            severity: Severity::Warning,
            reason: reason.code.clone(),
            message: reason.message.clone(),
        };
        Some(PodAnnouncement { name, uid: uid.to_owned(), announcement })
    }
}

#[cfg(test)]
mod tests;
