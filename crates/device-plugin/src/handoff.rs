//! What was planned for whom, and who has what: functions of the API's pods and the kubelet's
//! books.
//!
//! The kubelet names no pod when it asks for ids. Bound pods that its checkpoint doesn't know yet
//! are the ones that it may be asking for, since it writes the checkpoint after each container
//! (facts/kubernetes.md 1.8). A pod may take what was planned for another one of its size; what is
//! left then is the place that was planned for itself, so that plans are counted and not matched.

use std::collections::{BTreeMap, BTreeSet};

use mpshare_api::BoundPods;
use mpshare_api::bound_pods::{BoundContainer, BoundPod};
use mpshare_api::holdings::{Holding, Holdings, PodKey};
use mpshare_core::preference::Slot;
use mpshare_core::{DeviceId, GpuUuid, ResourceName};
use mpshare_kubelet::checkpoint::Entry;

use crate::ledger::PodResources;

/// How many units each container wants that the kubelet may be asking `resource` for.
pub(crate) fn awaited(
    bound: &BoundPods,
    checkpoint: &[Entry],
    resource: &ResourceName,
) -> Vec<u64> {
    let is_waiting =
        |(pod, container): &Place<'_>| entries(checkpoint, pod, container).count() == 0;
    containers(bound, resource).filter(is_waiting).map(|(_, container)| container.units).collect()
}

/// What was planned of `resource` and has been taken by nobody.
pub(crate) fn slots(bound: &BoundPods, checkpoint: &[Entry], resource: &ResourceName) -> Vec<Slot> {
    let (mut slots, places): (Vec<Slot>, Vec<Place<'_>>) = containers(bound, resource)
        .filter_map(|place| {
            let gpu: GpuUuid = place.1.gpu.as_ref()?.parse().ok()?;
            Some((Slot { units: place.1.units, gpu }, place))
        })
        .unzip();
    // Whoever came without a plan has taken nothing of one.
    let mut taken: BTreeMap<(u64, GpuUuid), usize> = BTreeMap::new();
    for (pod, container) in places {
        for gpu in entries(checkpoint, pod, container).filter_map(card) {
            *taken.entry((container.units, gpu)).or_default() += 1;
        }
    }
    slots.retain(|slot| match taken.get_mut(&(slot.units, slot.gpu.clone())) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        Some(_) | None => true,
    });
    slots
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
        let slots = slots(bound, checkpoint, &resource(MEM));
        slots.into_iter().map(|slot| (slot.units, slot.gpu)).collect()
    }

    #[test]
    fn pods_that_the_checkpoint_knows_are_awaited_no_more() {
        let bound = of(vec![bound("a", 7, Some(0)), bound("b", 5, Some(1)), bound("x", 2, None)]);
        let checkpoint = [entry("a", &[unit(1, 0)])];
        assert_eq!(awaited(&bound, &checkpoint, &resource(MEM)), [5, 2]);
        assert_eq!(awaited(&bound, &[], &resource("nvidia.com/gpu")), [0; 0]);
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
