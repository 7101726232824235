//! Records that were lost, made again from the replies that the kubelet keeps in its checkpoint
//! for the life of each pod (facts/kubernetes.md 1.8).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use mpshare_api::names::{ENV_MEMORY_LIMIT, ENV_PIPE_DIRECTORY, ENV_THREAD_PERCENTAGE};
use mpshare_core::{
    DeviceId, GpuUuid, Inventory, LiveShare, Memory, Mode, ResourceName, Share, ThreadPercent,
};
use mpshare_kubelet::checkpoint::Entry;

use super::{Basis, Evidence, Record};

/// Records for ids that somebody holds and no record in `records` names.
pub(super) fn missing_records(
    records: &[Record],
    evidence: &Evidence<'_>,
    now: Instant,
) -> Vec<Record> {
    let mut all = records.to_vec();
    for holding in holdings(evidence) {
        for (gpu, ids) in unrecorded(holding.ids, &all) {
            let told = holding.entry.and_then(|entry| share_of(entry, &ids, evidence.inventory));
            let basis = told.as_ref().map_or(Basis::Assumed, |_| Basis::Granted);
            let share = told.or_else(|| {
                let resource = holding.resource.parse().ok()?;
                assumed(&gpu, &ids, resource, evidence.inventory?, &all)
            });
            if let Some(share) = share {
                all.push(Record {
                    pod_uid: holding.entry.map(|entry| entry.pod_uid.clone()),
                    basis,
                    ..Record::new(share, now)
                });
            }
        }
    }
    all.split_off(records.len())
}

/// Ids that somebody holds, according to one source.
struct Holding<'a> {
    resource: &'a str,
    ids: &'a BTreeSet<String>,
    entry: Option<&'a Entry>,
}

/// The checkpoint comes first: it says more.
fn holdings<'a>(evidence: &Evidence<'a>) -> impl Iterator<Item = Holding<'a>> {
    let entries = evidence.checkpoint.unwrap_or_default().iter();
    let in_checkpoint = entries.map(|entry| Holding {
        resource: &entry.resource,
        ids: &entry.device_ids,
        entry: Some(entry),
    });
    let listed = evidence.listing.iter().flat_map(|listing| listing.held);
    in_checkpoint.chain(listed.map(|(holder, ids)| Holding {
        resource: &holder.resource,
        ids,
        entry: None,
    }))
}

/// What a reply of ours gave for `ids`, which are all of one card; `None` where it isn't to be
/// read from it.
pub(super) fn share_of(
    entry: &Entry,
    ids: &[DeviceId],
    inventory: Option<&Inventory>,
) -> Option<LiveShare> {
    let gpu = ids.first()?.gpu().clone();
    let envs = &entry.reply.as_ref()?.envs;
    let is_whole = ids.iter().all(|id| *id == DeviceId::whole(gpu.clone()));
    let (mode, share) = if let Some(limit) = envs.get(ENV_MEMORY_LIMIT) {
        (Mode::Mps, limits(limit, envs.get(ENV_THREAD_PERCENTAGE)?, entry, ids)?)
    } else if is_whole && !envs.contains_key(ENV_PIPE_DIRECTORY) {
        (Mode::Exclusive, whole(&gpu, inventory?)?)
    } else {
        return None;
    };
    Some(LiveShare { ids: ids.to_vec(), gpu, resource: entry.resource.parse().ok()?, mode, share })
}

/// The limits in a container's environment. Where it holds only some of the ids that the reply
/// was for, the rest went to a later container, and its part with it.
fn limits(memory: &str, percent: &str, entry: &Entry, ids: &[DeviceId]) -> Option<Share> {
    let mib = memory.strip_prefix("0=")?.strip_suffix('M')?.parse().ok()?;
    let percent: ThreadPercent = percent.parse().ok()?;
    let all = u32::try_from(entry.device_ids.len()).ok()?;
    let part = u32::try_from(ids.len()).ok()?;
    let memory = Memory::from_mib(mib);
    if part >= all {
        return Some(Share { memory, percent });
    }
    Some(Share {
        memory: memory.split(all).times(part.into()),
        percent: percent.split(all).times(part),
    })
}

fn whole(gpu: &GpuUuid, inventory: &Inventory) -> Option<Share> {
    inventory.gpu(gpu).map(|gpu| Share { memory: gpu.memory, percent: ThreadPercent::FULL })
}

/// All that the card has left, so that nothing new is granted on it until the holder ends.
fn assumed(
    gpu: &GpuUuid,
    ids: &[DeviceId],
    resource: ResourceName,
    inventory: &Inventory,
    beside: &[Record],
) -> Option<LiveShare> {
    let card = whole(gpu, inventory)?;
    let on_card = || {
        let on_card = beside.iter().filter(|record| record.share.gpu == *gpu);
        on_card.map(|record| record.share.share)
    };
    let threads: u32 = on_card().map(|share| share.percent.tenths()).sum();
    let tenths = card.percent.tenths().saturating_sub(threads).max(1);
    let memory = on_card().map(|share| share.memory).sum();
    let is_whole = ids.iter().all(|id| *id == DeviceId::whole(gpu.clone()));
    Some(LiveShare {
        ids: ids.to_vec(),
        gpu: gpu.clone(),
        resource,
        mode: if is_whole { Mode::Exclusive } else { Mode::Mps },
        share: Share {
            memory: card.memory.saturating_sub(memory),
            percent: ThreadPercent::from_tenths(tenths).ok()?,
        },
    })
}

/// Those of `ids` that are ours and in no record, by card.
fn unrecorded(ids: &BTreeSet<String>, records: &[Record]) -> BTreeMap<GpuUuid, Vec<DeviceId>> {
    let mut by_gpu: BTreeMap<GpuUuid, Vec<DeviceId>> = BTreeMap::new();
    let is_recorded = |id: &DeviceId| records.iter().any(|record| record.share.ids.contains(id));
    let ids = ids.iter().filter_map(|id| id.parse::<DeviceId>().ok());
    for id in ids.filter(|id| !is_recorded(id)) {
        by_gpu.entry(id.gpu().clone()).or_default().push(id);
    }
    by_gpu
}
