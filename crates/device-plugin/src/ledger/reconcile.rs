//! Which records are still held, decided from what the kubelet tells: a function of its answers,
//! the records and the time.
//!
//! Two sources, because each lacks something: the pod resources API never lists the ids of
//! regular init containers (facts/kubernetes.md 3), and the checkpoint keeps those of ended pods
//! until its next write (1.8). The kubelet has let go of a share when both lack it. While the
//! checkpoint can't be read, that is known only of a share that the API has listed before.
//!
//! Both forget a force-deleted pod before its processes have ended (facts/kubernetes.md 9), so its
//! share isn't over yet: the pod becomes a former owner of the record, under a new revision, and
//! the record goes once the supervisor has looked at that revision and found no process.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use mpshare_core::{Inventory, LiveShare};
use mpshare_kubelet::checkpoint::Entry;
use mpshare_kubelet::pod_resources::Holder;

use super::rebuild::{missing_records, share_of};
use super::{Basis, Clients, Record, Standing};

/// How long a former owner without processes on the card is remembered. Its processes have been
/// killed long before: the kubelet gives them seconds (facts/kubernetes.md 9).
const FORMER_POD_KEPT: Duration = Duration::from_mins(1);

/// Who holds which ids, as the pod resources API tells it.
pub(crate) type PodResources = BTreeMap<Holder, BTreeSet<String>>;

/// An answer of the pod resources API.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listing<'a> {
    /// What it says.
    pub(crate) held: &'a PodResources,
    /// When it was asked for: it says nothing about a share that was granted since.
    pub(crate) asked: Instant,
}

/// What is known at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Evidence<'a> {
    /// The answer of the pod resources API; `None` where there was none.
    pub(crate) listing: Option<Listing<'a>>,
    /// The kubelet's checkpoint, empty where there is none; `None` where it can't be read.
    pub(crate) checkpoint: Option<&'a [Entry]>,
    /// Pods that have processes, whoever holds what.
    pub(crate) clients: &'a Clients,
    /// Revision of what changes now.
    pub(crate) revision: u64,
    /// The cards.
    pub(crate) inventory: Option<&'a Inventory>,
    /// How long a share that nobody holds may still be on its way into a pod.
    pub(crate) admission: Duration,
}

/// What became of the records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The records from now on.
    pub(crate) records: Vec<Record>,
    /// Shares that are over.
    pub(crate) ended: Vec<LiveShare>,
    /// Records that were lost and made again.
    pub(crate) rebuilt: Vec<Record>,
    /// Ids that only the checkpoint has: those of init containers, or of pods that have ended.
    pub(crate) checkpoint_only: BTreeSet<String>,
}

/// Decides which records stay, completes them, and makes lost ones again.
pub(crate) fn reconcile(records: &[Record], evidence: &Evidence<'_>, now: Instant) -> Outcome {
    let (mut kept, mut ended) = (Vec::new(), Vec::new());
    for record in records {
        let record = match fate(record, evidence, now) {
            Fate::Over => {
                ended.push(record.share.clone());
                continue;
            }
            Fate::Left => left(record, evidence.revision),
            Fate::Stays => record.clone(),
        };
        kept.push(completed(record, evidence, now));
    }
    let rebuilt = missing_records(&kept, evidence, now);
    kept.extend(rebuilt.iter().cloned());
    Outcome { checkpoint_only: checkpoint_only(&kept, evidence), records: kept, ended, rebuilt }
}

enum Fate {
    Stays,
    /// The kubelet has let go of it; whether its pod still has processes isn't known yet.
    Left,
    Over,
}

fn fate(record: &Record, evidence: &Evidence<'_>, now: Instant) -> Fate {
    let is_held = evidence.listing.is_none()
        || is_listed(record, evidence)
        || holders(record, evidence).next().is_some();
    let age = now.saturating_duration_since(record.since);
    // What was never listed may be on its way into a pod, or an init container's.
    let may_be_unseen = record.standing == Standing::Promised
        && (age < evidence.admission || evidence.checkpoint.is_none());
    if is_held || may_be_unseen {
        return Fate::Stays;
    }
    if record.pod_uid.is_some() {
        return Fate::Left;
    }
    let may_live = |uid: &String| evidence.clients.may_live(record, uid);
    if record.former_pods.iter().any(may_live) { Fate::Stays } else { Fate::Over }
}

/// The record once its pod is a former owner.
fn left(record: &Record, revision: u64) -> Record {
    let mut record = record.clone();
    record.former_pods.extend(record.pod_uid.take());
    Record { revision, ..record }
}

/// Whether the pod resources API names one of a record's ids.
fn is_listed(record: &Record, evidence: &Evidence<'_>) -> bool {
    let listed = listed(evidence).unwrap_or_default();
    let mut ids = record.share.ids.iter().map(ToString::to_string);
    ids.any(|id| listed.contains(id.as_str()))
}

/// Ids that the pod resources API names.
fn listed<'a>(evidence: &Evidence<'a>) -> Option<BTreeSet<&'a str>> {
    let holders = evidence.listing?.held.values();
    Some(holders.flatten().map(String::as_str).collect())
}

/// The checkpoint's entries that hold one of a record's ids.
fn holders<'a>(record: &Record, evidence: &Evidence<'a>) -> impl Iterator<Item = &'a Entry> {
    let ids: Vec<String> = record.share.ids.iter().map(ToString::to_string).collect();
    let entries = evidence.checkpoint.unwrap_or_default().iter();
    entries.filter(move |entry| ids.iter().any(|id| entry.device_ids.contains(id)))
}

/// Fills in what only the checkpoint knows.
fn completed(mut record: Record, evidence: &Evidence<'_>, now: Instant) -> Record {
    let age = now.saturating_duration_since(record.since);
    let is_answered = evidence.listing.is_some_and(|listing| record.since <= listing.asked);
    if is_answered && is_listed(&record, evidence) {
        record.standing = Standing::Held;
    }
    if record.pod_uid.is_none() {
        // Right after a grant the checkpoint still names the former owner. Later on a former
        // owner that is named is the same pod: an app container took over the ids of an init
        // container (facts/kubernetes.md 1.9).
        let is_settled = age >= evidence.admission;
        let uid = holders(&record, evidence)
            .map(|entry| &entry.pod_uid)
            .find(|uid| is_settled || !record.former_pods.contains(uid));
        record.pod_uid = uid.cloned();
        record.former_pods.retain(|former| Some(former) != record.pod_uid.as_ref());
    }
    if age >= FORMER_POD_KEPT {
        let former = std::mem::take(&mut record.former_pods);
        let may_live = |uid: &String| evidence.clients.may_live(&record, uid);
        record.former_pods = former.into_iter().filter(may_live).collect();
    }
    if record.basis == Basis::Assumed {
        let told = holders(&record, evidence)
            .find_map(|entry| share_of(entry, &record.share.ids, evidence.inventory));
        if let Some(share) = told {
            record.share = share;
            record.basis = Basis::Granted;
        }
    }
    record
}

fn checkpoint_only(records: &[Record], evidence: &Evidence<'_>) -> BTreeSet<String> {
    let (Some(listed), Some(entries)) = (listed(evidence), evidence.checkpoint) else {
        return BTreeSet::new();
    };
    let ours = records.iter().flat_map(|record| &record.share.ids);
    ours.map(ToString::to_string)
        .filter(|id| !listed.contains(id.as_str()))
        .filter(|id| entries.iter().any(|entry| entry.device_ids.contains(id)))
        .collect()
}

#[cfg(test)]
mod tests;
