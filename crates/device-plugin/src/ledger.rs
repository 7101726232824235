//! Who was given what: the records of live shares, in memory and in `allocations.json`.
//!
//! A grant reaches the disk before the kubelet gets its answer, so a plugin that is killed at any
//! moment forgets no share. Whether a share is still held is decided by [`reconcile`].

mod file;
mod rebuild;
mod reconcile;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use mpshare_api::status::FormerPods;
use mpshare_api::{GpuState, GpuStatus, NodeStatus};
use mpshare_core::{DeviceId, Grant, LiveShare};

pub(crate) use file::{Ledger, Origin};
pub(crate) use reconcile::{Evidence, Listing, Outcome, PodResources, reconcile};

/// One share that a container holds, or held until a moment ago.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// What it is.
    pub(crate) share: LiveShare,
    /// UID of the pod that holds it, once the kubelet's checkpoint has told.
    pub(crate) pod_uid: Option<String>,
    /// UIDs of pods that held one of the ids, while their processes may still live.
    pub(crate) former_pods: Vec<String>,
    /// Revision of the ledger with which it was granted, or with which its pod let go of it.
    pub(crate) revision: u64,
    /// When this process learned of it.
    pub(crate) since: Instant,
    /// Where its amounts come from.
    pub(crate) basis: Basis,
    /// Whether the kubelet has been seen holding it.
    pub(crate) standing: Standing,
}

/// Whether the kubelet has been seen holding a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Not yet: its pod may be on its way through admission.
    Promised,
    /// It has: when it lets go of it, the share is over.
    Held,
}

/// Where the amounts of a record come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Basis {
    /// From a grant.
    Granted,
    /// From nothing better than what the card has left: the record was lost and the reply that
    /// the kubelet keeps can't be read.
    Assumed,
}

/// Which pods have processes, as the supervisor reports it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Clients {
    /// UIDs of pods that have a process on a card, by card; a card whose clients aren't known is
    /// missing.
    on_card: BTreeMap<String, BTreeSet<String>>,
    /// The last look for processes of former owners.
    looked: FormerPods,
}

impl Clients {
    /// As the supervisor reports them.
    pub(crate) fn of(status: Option<&NodeStatus>) -> Self {
        // A supervisor that has just started hasn't looked for the card's daemon yet.
        let is_known = |gpu: &&GpuStatus| gpu.state != GpuState::Starting || gpu.daemon.is_some();
        let known = status.iter().flat_map(|status| &status.gpus).filter(is_known);
        let uids = |gpu: &GpuStatus| gpu.users().filter_map(|user| user.pod_uid.clone()).collect();
        Self {
            on_card: known.map(|gpu| (gpu.uuid.clone(), uids(gpu))).collect(),
            looked: status.map(|status| status.former_pods.clone()).unwrap_or_default(),
        }
    }

    /// Whether a pod has a client on the card of `share`, as far as is known.
    fn may_have(&self, share: &LiveShare, pod_uid: &str) -> bool {
        self.on_card.get(share.gpu.as_str()).is_none_or(|uids| uids.contains(pod_uid))
    }

    /// Whether a former owner that `record` names may still have processes. One without a client
    /// may be about to start one, so it counts until it was looked for at the record's revision.
    fn may_live(&self, record: &Record, pod_uid: &String) -> bool {
        self.looked.revision < record.revision
            || self.looked.alive.contains(pod_uid)
            || self.may_have(&record.share, pod_uid)
    }
}

impl Record {
    /// A record of a share that was learned of at `since`.
    pub(crate) fn new(share: LiveShare, since: Instant) -> Self {
        Self {
            share,
            pod_uid: None,
            former_pods: Vec::new(),
            revision: 0,
            since,
            basis: Basis::Granted,
            standing: Standing::Promised,
        }
    }

    /// Whether one of `ids` is one of the record's.
    pub(crate) fn overlaps(&self, ids: &[DeviceId]) -> bool {
        self.share.ids.iter().any(|id| ids.contains(id))
    }
}

/// The records once `grant` is in force. Who held one of its ids before is noted, because the
/// kubelet frees a force-deleted pod's ids before its processes are gone (facts/kubernetes.md 9).
pub(crate) fn granted(
    records: &[Record],
    grant: &Grant,
    clients: &Clients,
    (revision, now): (u64, Instant),
) -> Vec<Record> {
    let taken: BTreeSet<DeviceId> =
        grant.shares.iter().flat_map(|share| share.ids.clone()).collect();
    let stay = records.iter().filter_map(|record| {
        let share = record.share.without(&taken)?;
        Some(Record { share, ..record.clone() })
    });
    let new = grant.shares.iter().map(|share| Record {
        former_pods: former_pods(records, share, clients),
        revision,
        ..Record::new(share.clone(), now)
    });
    stay.chain(new).collect()
}

/// The last owners of a share's ids, and the ones before them that still have processes. Also
/// the former owners of other ids of the card: what one of them had may have been more than its
/// successor took, and the rest is in this share.
fn former_pods(records: &[Record], share: &LiveShare, clients: &Clients) -> Vec<String> {
    let on_card = records.iter().filter(|record| record.share.gpu == share.gpu);
    let uids: BTreeSet<String> = on_card
        .flat_map(|record| {
            let is_before = record.overlaps(&share.ids);
            let older = record.former_pods.iter();
            // Else records that take each other's place, each in less time than a former pod is
            // kept, would hand on all that there have ever been.
            let still_there = older.filter(|uid| clients.may_live(record, uid));
            still_there.chain(record.pod_uid.as_ref().filter(|_| is_before)).cloned()
        })
        .collect();
    uids.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{inventory, node_config, ready, resource, share, status, unit};
    use mpshare_api::status::ClientStatus;
    use mpshare_core::grant;

    fn record(ids: &[DeviceId], pod: &str) -> Record {
        Record { pod_uid: Some(pod.into()), ..Record::new(share(ids, 7680, 500), Instant::now()) }
    }

    fn regrant(records: &[Record], clients: &Clients) -> Vec<Record> {
        let live: Vec<LiveShare> = records.iter().map(|record| record.share.clone()).collect();
        let gpu = resource("nvidia.com/gpu");
        let grant = grant(&node_config(2), &inventory(1), &live, &gpu, &[unit(0, 0)]).unwrap();
        granted(records, &grant, clients, (1, Instant::now()))
    }

    #[test]
    fn a_new_owner_of_an_id_remembers_the_pod_that_had_it() {
        let before = [record(&[unit(0, 0)], "pod-a"), record(&[unit(0, 1)], "pod-b")];
        let after = regrant(&before, &Clients::default());
        assert_eq!(after.len(), 2);
        assert_eq!(after[0], before[1]);
        assert_eq!(after[1].former_pods, ["pod-a"]);
        assert_eq!(after[1].pod_uid, None);
    }

    #[test]
    fn the_rest_of_a_former_owners_share_waits_for_its_processes_too() {
        let mut successor = record(&[unit(0, 0)], "pod-b");
        successor.former_pods = vec!["pod-a".into()];
        let records = [successor, record(&[unit(1, 1)], "pod-c")];
        let next = share(&[unit(0, 2)], 3840, 250);
        assert_eq!(former_pods(&records, &next, &Clients::default()), ["pod-a"]);
    }

    #[test]
    fn of_older_owners_only_those_with_processes_are_remembered() {
        let mut before = record(&[unit(0, 0)], "pod-c");
        before.former_pods = vec!["pod-a".into(), "pod-b".into()];
        let mut gpu = ready(0, "any");
        gpu.daemon.as_mut().unwrap().clients = vec![ClientStatus {
            pid: 7,
            memory_mib: None,
            pod_uid: Some("pod-a".into()),
            container_id: None,
        }];
        let clients = Clients::of(Some(&status(vec![gpu])));
        let after = regrant(&[before], &clients);
        assert_eq!(after[0].former_pods, ["pod-a", "pod-c"]);
    }

    #[test]
    fn two_units_that_change_hands_all_the_time_do_not_hand_on_pods_that_are_gone() {
        let mut records = vec![record(&[unit(0, 0)], "pod-a"), record(&[unit(0, 1)], "pod-b")];
        let gpu = resource("nvidia.com/gpu");
        for revision in 1..20 {
            let mut status = status(vec![ready(0, "any")]);
            status.former_pods = FormerPods { revision: revision - 1, alive: Vec::new() };
            let clients = Clients::of(Some(&status));
            let live: Vec<LiveShare> = records.iter().map(|record| record.share.clone()).collect();
            let ids = [unit(0, u32::try_from(revision % 2).unwrap())];
            let grant = grant(&node_config(2), &inventory(1), &live, &gpu, &ids).unwrap();
            records = granted(&records, &grant, &clients, (revision, Instant::now()));
            for record in &mut records {
                record.pod_uid.get_or_insert_with(|| format!("pod-{revision}"));
            }
        }
        let most = records.iter().map(|record| record.former_pods.len()).max();
        assert!(most <= Some(2), "{records:?}");
    }

    #[test]
    fn an_older_owner_is_remembered_until_it_was_looked_for() {
        let mut before = record(&[unit(0, 0)], "pod-b");
        (before.revision, before.former_pods) = (5, vec!["pod-a".into()]);
        let former = |revision, alive: &[&str]| {
            let mut status = status(vec![ready(0, "any")]);
            let alive = alive.iter().map(ToString::to_string).collect();
            status.former_pods = FormerPods { revision, alive };
            regrant(std::slice::from_ref(&before), &Clients::of(Some(&status)))[0]
                .former_pods
                .clone()
        };
        assert_eq!(former(4, &[]), ["pod-a", "pod-b"], "its first client may come any moment");
        assert_eq!(former(5, &["pod-a"]), ["pod-a", "pod-b"]);
        assert_eq!(former(5, &[]), ["pod-b"]);
    }
}
