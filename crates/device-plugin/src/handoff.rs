//! What was planned for whom, and who has what: functions of the API's pods and the kubelet's
//! books.
//!
//! The kubelet names no pod when it asks for ids. Bound pods that its checkpoint doesn't know yet
//! are the ones that it may be asking for, since it writes the checkpoint after each container
//! (facts/kubernetes.md 1.8), but for those that it did know: they have ended, which the API learns
//! later. A pod may take what was planned for another one of its size; what is left then is the place
//! that was planned for itself, so that plans are counted and not matched.

use std::collections::{BTreeMap, BTreeSet};

use mpshare_api::BoundPods;
use mpshare_api::bound_pods::{BoundContainer, BoundPod};
use mpshare_api::holdings::{Holding, Holdings, PodKey};
use mpshare_core::preference::Slot;
use mpshare_core::{DeviceId, GpuUuid, ResourceName};
use mpshare_kubelet::checkpoint::Entry;

use crate::ledger::PodResources;

/// The containers that the kubelet has given something, also those that have ended, until the API
/// says so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Come(BTreeSet<(String, String)>);

impl Come {
    /// Takes note of who has come, and forgets who is gone.
    pub fn note(&mut self, bound: &BoundPods, checkpoint: &[Entry]) {
        self.0.retain(|(uid, _)| bound.pods.iter().any(|pod| pod.uid == *uid));
        let is_bound = |entry: &&Entry| bound.pods.iter().any(|pod| pod.uid == entry.pod_uid);
        let new = checkpoint.iter().filter(is_bound);
        self.0.extend(new.map(|entry| (entry.pod_uid.clone(), entry.container.clone())));
    }

    fn has(&self, (pod, container): &Place<'_>) -> bool {
        self.0.contains(&(pod.uid.clone(), container.name.clone()))
    }
}

/// How many units each container wants that the kubelet may be asking `resource` for.
pub(crate) fn awaited(bound: &BoundPods, come: &Come, resource: &ResourceName) -> Vec<u64> {
    let waiting = containers(bound, resource).filter(|place| !come.has(place));
    waiting.map(|(_, container)| container.units).collect()
}

/// What was planned of `resource` and has been taken by nobody: as many places of each size as
/// containers are awaited of it at most.
pub fn slots(
    bound: &BoundPods,
    checkpoint: &[Entry],
    come: &Come,
    resource: &ResourceName,
) -> Vec<Slot> {
    let has_ended = |place: &Place<'_>| {
        come.has(place) && entries(checkpoint, place.0, place.1).next().is_none()
    };
    // Whoever came without a plan has taken nothing of one.
    let planned: Vec<(Slot, Place<'_>)> = containers(bound, resource)
        .filter(|place| !has_ended(place))
        .filter_map(|place| {
            let gpu: GpuUuid = place.1.gpu.as_ref()?.parse().ok()?;
            Some((Slot { units: place.1.units, gpu }, place))
        })
        .collect();
    let (come, awaited): (Vec<_>, Vec<_>) = planned.iter().partition(|(_, place)| come.has(place));
    let taken = come.iter().flat_map(|(slot, (pod, container))| {
        let cards = entries(checkpoint, pod, container).filter_map(card);
        cards.map(|gpu| Slot { units: slot.units, gpu })
    });
    let mut taken: Vec<Slot> = taken.collect();
    // Of whom the place is that is still there: of whoever was planned on it, or else of one whose own
    // place has been taken.
    let mut left = Vec::new();
    let mut displaced = Vec::new();
    for (slot, _) in &awaited {
        if take(&mut taken, slot) { displaced.push(slot.units) } else { left.push(slot.clone()) }
    }
    for (slot, _) in &come {
        if !take(&mut taken, slot)
            && let Some(at) = displaced.iter().position(|units| *units == slot.units)
        {
            displaced.swap_remove(at);
            left.push(slot.clone());
        }
    }
    left
}

/// Takes one like this out, if there is one.
fn take(slots: &mut Vec<Slot>, one: &Slot) -> bool {
    let found = slots.iter().position(|slot| slot == one);
    found.inspect(|at| drop(slots.swap_remove(*at))).is_some()
}

/// A container in its pod.
type Place<'a> = (&'a BoundPod, &'a BoundContainer);

fn containers<'a>(
    bound: &'a BoundPods,
    resource: &'a ResourceName,
) -> impl Iterator<Item = Place<'a>> {
    let all = bound.pods.iter().flat_map(|pod| pod.containers.iter().map(move |it| (pod, it)));
    all.filter(move |(_, container)| container.resource == resource.as_str())
}

fn entries<'a>(
    checkpoint: &'a [Entry],
    pod: &'a BoundPod,
    container: &'a BoundContainer,
) -> impl Iterator<Item = &'a Entry> {
    checkpoint.iter().filter(move |entry| {
        entry.pod_uid == pod.uid
            && entry.container == container.name
            && entry.resource == container.resource
    })
}

/// The card of an entry's ids, which are all of one.
fn card(entry: &Entry) -> Option<GpuUuid> {
    let id: DeviceId = entry.device_ids.first()?.parse().ok()?;
    Some(id.gpu().clone())
}

/// Who holds what of our cards. The checkpoint knows UIDs and init containers; where it can't be
/// read the pod resources API has to do.
pub(crate) fn holdings(checkpoint: Option<&[Entry]>, listed: Option<&PodResources>) -> Holdings {
    let entries = match (checkpoint, listed) {
        (Some(entries), _) => entries
            .iter()
            .flat_map(|entry| {
                let pod = PodKey::Uid(entry.pod_uid.clone());
                of_container(&pod, &entry.container, &entry.resource, &entry.device_ids)
            })
            .collect(),
        (None, Some(listed)) => listed
            .iter()
            .flat_map(|(holder, ids)| {
                let (namespace, name) = (holder.namespace.clone(), holder.pod.clone());
                let pod = PodKey::Name { namespace, name };
                of_container(&pod, &holder.container, &holder.resource, ids)
            })
            .collect(),
        (None, None) => Vec::new(),
    };
    Holdings::of(entries)
}

fn of_container(
    pod: &PodKey,
    container: &str,
    resource: &str,
    ids: &BTreeSet<String>,
) -> Vec<Holding> {
    let mut units: BTreeMap<String, u64> = BTreeMap::new();
    // What doesn't parse is another plugin's.
    for id in ids.iter().filter_map(|id| id.parse::<DeviceId>().ok()) {
        *units.entry(id.gpu().to_string()).or_default() += 1;
    }
    let holding = |(gpu, units)| Holding {
        pod: pod.clone(),
        container: container.to_owned(),
        resource: resource.to_owned(),
        gpu,
        units,
    };
    units.into_iter().map(holding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{resource, unit, uuid};
    use mpshare_kubelet::pod_resources::Holder;

    const MEM: &str = "aliyun.com/gpu-mem";

    fn bound(uid: &str, units: u64, gpu: Option<u32>) -> BoundPod {
        BoundPod {
            uid: uid.to_owned(),
            namespace: "ns".to_owned(),
            name: uid.to_owned(),
            containers: vec![BoundContainer {
                name: "c".to_owned(),
                resource: MEM.to_owned(),
                units,
                gpu: gpu.map(|gpu| uuid(gpu).to_string()),
            }],
            ending: None,
        }
    }

    fn entry(uid: &str, ids: &[DeviceId]) -> Entry {
        Entry {
            pod_uid: uid.to_owned(),
            container: "c".to_owned(),
            resource: MEM.to_owned(),
            device_ids: ids.iter().map(ToString::to_string).collect(),
            reply: None,
        }
    }

    fn of(pods: Vec<BoundPod>) -> BoundPods {
        BoundPods { pods, ..BoundPods::default() }
    }

    fn left(bound: &BoundPods, checkpoint: &[Entry]) -> Vec<(u64, GpuUuid)> {
        let mut come = Come::default();
        come.note(bound, checkpoint);
        let slots = slots(bound, checkpoint, &come, &resource(MEM));
        slots.into_iter().map(|slot| (slot.units, slot.gpu)).collect()
    }

    #[test]
    fn pods_that_the_checkpoint_knows_are_awaited_no_more() {
        let bound = of(vec![bound("a", 7, Some(0)), bound("b", 5, Some(1)), bound("x", 2, None)]);
        let mut come = Come::default();
        come.note(&bound, &[entry("a", &[unit(1, 0)])]);
        assert_eq!(awaited(&bound, &come, &resource(MEM)), [5, 2]);
        assert_eq!(awaited(&bound, &Come::default(), &resource("nvidia.com/gpu")), [0; 0]);
    }

    #[test]
    fn who_has_ended_leaves_no_place_to_others_before_the_api_knows() {
        let bound = of(vec![bound("a", 3, Some(0)), bound("b", 3, Some(1))]);
        let mut come = Come::default();
        come.note(&bound, &[entry("a", &[unit(0, 0), unit(0, 1), unit(0, 2)])]);
        come.note(&bound, &[]);
        let left = slots(&bound, &[], &come, &resource(MEM));
        assert_eq!(left, [Slot { units: 3, gpu: uuid(1) }]);
        assert_eq!(awaited(&bound, &come, &resource(MEM)), [3]);
        come.note(&of(Vec::new()), &[]);
        assert_eq!(come, Come::default());
    }

    #[test]
    fn the_place_of_one_that_is_elsewhere_is_nobodys_when_nobody_waits_for_another_one() {
        let bound = of(vec![bound("a", 1, Some(1)), bound("b", 1, Some(2))]);
        // Whoever had exchanged places with it is gone.
        let a_on_0 = entry("a", &[unit(0, 0)]);
        assert_eq!(left(&bound, &[a_on_0]), [(1, uuid(2))]);
    }

    #[test]
    fn who_takes_anothers_place_leaves_its_own() {
        let pods = vec![bound("a", 2, Some(0)), bound("b", 2, Some(0)), bound("c", 2, Some(1))];
        let bound = of(pods);
        let all = [(2, uuid(0)), (2, uuid(0)), (2, uuid(1))];
        assert_eq!(left(&bound, &[]), all);
        let c_on_a = entry("c", &[unit(0, 0), unit(0, 1)]);
        let after = left(&bound, std::slice::from_ref(&c_on_a));
        assert_eq!(after, [(2, uuid(0)), (2, uuid(1))]);
        let and_a = entry("a", &[unit(0, 2), unit(0, 3)]);
        assert_eq!(left(&bound, &[c_on_a, and_a]), [(2, uuid(1))]);
    }

    #[test]
    fn who_has_no_plan_takes_nothing_of_one() {
        let bound = of(vec![bound("static", 2, None), bound("a", 2, Some(0))]);
        let checkpoint = [entry("static", &[unit(0, 0), unit(0, 1)])];
        assert_eq!(left(&bound, &checkpoint), [(2, uuid(0))]);
    }

    #[test]
    fn the_checkpoint_is_believed_and_else_the_pod_resources() {
        let ids = [unit(0, 0), unit(0, 1)];
        let holder = Holder {
            namespace: "ns".to_owned(),
            pod: "n".to_owned(),
            container: "c".to_owned(),
            resource: MEM.to_owned(),
        };
        let ids_text: BTreeSet<String> =
            ids.iter().map(ToString::to_string).chain(["nic-0".to_owned()]).collect();
        let listed = PodResources::from([(holder, ids_text)]);
        let by_uid = holdings(Some(&[entry("a", &ids)]), Some(&listed));
        assert_eq!(by_uid.entries[0].pod, PodKey::Uid("a".to_owned()));
        assert_eq!((by_uid.entries.len(), by_uid.entries[0].units), (1, 2));
        let by_name = holdings(None, Some(&listed));
        let name = PodKey::Name { namespace: "ns".to_owned(), name: "n".to_owned() };
        assert_eq!((&by_name.entries[0].pod, by_name.entries[0].units), (&name, 2));
        assert_eq!(by_name.entries[0].gpu, uuid(0).to_string());
    }
}
