//! What was planned for whom, and who has what: functions of the API's pods and the kubelet's
//! books.
//!
//! The kubelet names no pod when it asks for ids. Bound pods that its checkpoint doesn't know yet
//! are the ones that it may be asking for, since it writes the checkpoint after each container
//! (facts/kubernetes.md 1.8).

use std::collections::{BTreeMap, BTreeSet};

use mpshare_api::BoundPods;
use mpshare_api::bound_pods::{BoundContainer, BoundPod};
use mpshare_api::holdings::{Holding, Holdings, PodKey};
use mpshare_core::preference::Awaited;
use mpshare_core::{DeviceId, ResourceName};
use mpshare_kubelet::checkpoint::Entry;

use crate::ledger::PodResources;

/// The containers that the kubelet may be asking `resource` for.
pub(crate) fn awaited(
    bound: &BoundPods,
    checkpoint: &[Entry],
    resource: &ResourceName,
) -> Vec<Awaited> {
    let known: BTreeSet<(&str, &str)> = checkpoint
        .iter()
        .filter(|entry| entry.resource == resource.as_str())
        .map(|entry| (entry.pod_uid.as_str(), entry.container.as_str()))
        .collect();
    let waiting = |pod: &BoundPod, container: &BoundContainer| {
        container.resource == resource.as_str()
            && !known.contains(&(pod.uid.as_str(), container.name.as_str()))
    };
    let containers = bound
        .pods
        .iter()
        .flat_map(|pod| pod.containers.iter().filter(move |container| waiting(pod, container)));
    containers
        .map(|container| Awaited {
            resource: resource.clone(),
            units: container.units,
            gpu: container.gpu.as_ref().and_then(|gpu| gpu.parse().ok()),
        })
        .collect()
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

    #[test]
    fn pods_that_the_checkpoint_knows_are_awaited_no_more() {
        let pods = vec![bound("a", 7, Some(0)), bound("b", 7, Some(1)), bound("x", 2, None)];
        let bound = BoundPods { pods, ..BoundPods::default() };
        let waiting = awaited(&bound, &[entry("a", &[unit(1, 0)])], &resource(MEM));
        let waiting: Vec<_> = waiting.into_iter().map(|it| (it.units, it.gpu)).collect();
        assert_eq!(waiting, [(7, Some(uuid(1))), (2, None)]);
        assert_eq!(awaited(&bound, &[], &resource("nvidia.com/gpu")), []);
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
