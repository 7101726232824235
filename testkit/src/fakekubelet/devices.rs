//! The device manager's memory: devices, endpoints and who holds what. Values only, no calls
//! and no clock. The rules are those of `facts/kubernetes.md` 1.3 to 1.6 (Kubernetes 1.34).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use mpshare_kubelet::device_plugin::{
    ContainerAllocateResponse, Device, DevicePluginClient, DevicePluginOptions, HEALTHY,
};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use super::violation::{Rpc, Violation};

/// Ids of devices.
pub(super) type Ids = BTreeSet<String>;

/// Capacity and allocatable of one resource, as in the Node's status.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Healthy and unhealthy devices.
    pub capacity: usize,
    /// Healthy devices, allocated ones included.
    pub allocatable: usize,
}

/// The latest device list of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceList {
    /// When the kubelet took it over.
    pub at: Instant,
    /// Lists that came for this resource since the kubelet's process started.
    pub count: u64,
    /// What it amounts to.
    pub amounts: Amounts,
}

/// Devices of one resource.
#[derive(Default)]
pub(super) struct Resource {
    pub(super) healthy: Ids,
    pub(super) unhealthy: Ids,
    /// Whatever the last list named.
    pub(super) known: BTreeMap<String, Device>,
    pub(super) last_list: Option<DeviceList>,
}

/// The plugin that answers for a resource.
#[derive(Clone, Default)]
pub(super) struct Endpoint {
    /// `None` once stopped.
    pub(super) client: Option<DevicePluginClient<Channel>>,
    /// Fires when the kubelet closes the connection.
    pub(super) closed: CancellationToken,
    pub(super) options: Option<DevicePluginOptions>,
    pub(super) stopped: Option<Instant>,
}

/// A connection to a plugin, told apart from a later one of the same resource by its number.
pub(super) struct Client {
    pub(super) number: u64,
    pub(super) closed: CancellationToken,
}

/// What a container got of one resource.
#[derive(Clone)]
pub(super) struct Holding {
    pub(super) ids: Ids,
    /// The first reply, kept for the pod's life.
    pub(super) reply: ContainerAllocateResponse,
}

/// Container to resource to holding.
pub(super) type Holdings = BTreeMap<String, BTreeMap<String, Holding>>;

/// Ids that are on their way into a container.
struct Transit {
    resource: String,
    ids: Ids,
    during: Rpc,
}

/// All of it.
#[derive(Default)]
pub(super) struct Devices {
    pub(super) resources: BTreeMap<String, Resource>,
    /// Resources whose plugin stayed away: capacity 0, the key stays.
    pub(super) expired: BTreeSet<String>,
    pub(super) endpoints: BTreeMap<String, Endpoint>,
    pub(super) clients: BTreeMap<String, Client>,
    pub(super) allocated: BTreeMap<String, Ids>,
    /// Pod UID to what its containers hold.
    pub(super) pods: BTreeMap<String, Holdings>,
    transits: BTreeMap<u64, Transit>,
    next_number: u64,
}

impl Devices {
    /// A number that wasn't given before.
    pub(super) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Goes on with the numbers of `before`, so that none comes twice in a node's life.
    pub(super) fn continue_numbers(&mut self, before: &Self) {
        self.next_number = before.next_number;
    }

    /// Takes over a device list. Tells what a real kubelet would have stumbled over.
    pub(super) fn replace_list(
        &mut self,
        resource: &str,
        list: Vec<Device>,
        now: Instant,
    ) -> Vec<Violation> {
        self.expired.remove(resource);
        let entry = self.resources.entry(resource.into()).or_default();
        entry.known = list.into_iter().map(|d| (d.id.clone(), d)).collect();
        let (healthy, unhealthy): (Vec<_>, Vec<_>) =
            entry.known.values().partition(|d| d.health == HEALTHY);
        entry.healthy = healthy.iter().map(|d| d.id.clone()).collect();
        entry.unhealthy = unhealthy.iter().map(|d| d.id.clone()).collect();
        entry.last_list = Some(DeviceList {
            at: now,
            count: entry.last_list.map_or(0, |last| last.count) + 1,
            amounts: entry.amounts(),
        });
        self.vanished_in_transit(resource)
    }

    fn vanished_in_transit(&self, resource: &str) -> Vec<Violation> {
        let mut vanished = Vec::new();
        for transit in self.transits.values().filter(|t| t.resource == resource) {
            for device in transit.ids.iter().filter(|id| !self.knows(resource, id)) {
                vanished.push(Violation::DeviceVanished {
                    resource: resource.into(),
                    device: device.clone(),
                    during: transit.during,
                });
            }
        }
        vanished
    }

    fn knows(&self, resource: &str, id: &str) -> bool {
        self.resources.get(resource).is_some_and(|entry| entry.known.contains_key(id))
    }

    /// The ids of `ids` that the last list didn't name.
    pub(super) fn unknown(&self, resource: &str, ids: &Ids) -> Vec<String> {
        let unknown = ids.iter().filter(|id| !self.knows(resource, id));
        unknown.cloned().collect()
    }

    /// Moves all devices to unhealthy and stops the endpoint: the stream has ended.
    pub(super) fn disconnect(&mut self, resource: &str, now: Instant) {
        if let Some(entry) = self.resources.get_mut(resource) {
            let mut healthy = std::mem::take(&mut entry.healthy);
            entry.unhealthy.append(&mut healthy);
        }
        if let Some(endpoint) = self.endpoints.get_mut(resource) {
            endpoint.client = None;
            endpoint.stopped = Some(now);
        }
    }

    /// Resource that a plugin registered or that somebody holds devices of.
    pub(super) fn is_device_resource(&self, resource: &str) -> bool {
        self.resources.contains_key(resource) || self.allocated.contains_key(resource)
    }

    pub(super) fn holding(&self, pod: &str, container: &str, resource: &str) -> Option<&Holding> {
        self.pods.get(pod)?.get(container)?.get(resource)
    }

    pub(super) fn hold(&mut self, pod: &str, container: &str, resource: &str, holding: Holding) {
        let of_pod = self.pods.entry(pod.into()).or_default();
        let of_container = of_pod.entry(container.into()).or_default();
        of_container.insert(resource.into(), holding);
        self.recompute_allocated();
    }

    /// Frees what pods hold that aren't `active`. Kubelets do it lazily.
    pub(super) fn free_inactive(&mut self, active: &BTreeSet<String>) {
        let before = self.pods.len();
        self.pods.retain(|uid, _| active.contains(uid));
        if self.pods.len() != before {
            self.recompute_allocated();
        }
    }

    /// Sets the allocated ids to what pods really hold.
    pub(super) fn recompute_allocated(&mut self) {
        self.allocated.clear();
        for containers in self.pods.values() {
            for (resource, holding) in containers.values().flatten() {
                let ids = self.allocated.entry(resource.clone()).or_default();
                ids.extend(holding.ids.iter().cloned());
            }
        }
    }

    /// What a status sync finds. Expires endpoints that stopped longer than `grace` ago; true in
    /// the second place when one did and the checkpoint has to be written.
    pub(super) fn capacity(
        &mut self,
        now: Instant,
        grace: Duration,
    ) -> (BTreeMap<String, Amounts>, bool) {
        let expired: Vec<String> = self
            .resources
            .keys()
            .filter(|resource| match self.endpoints.get(*resource) {
                Some(endpoint) => {
                    endpoint.stopped.is_some_and(|at| now.saturating_duration_since(at) >= grace)
                }
                None => true,
            })
            .cloned()
            .collect();
        for resource in &expired {
            self.endpoints.remove(resource);
            self.resources.remove(resource);
            self.expired.insert(resource.clone());
        }
        let mut amounts: BTreeMap<String, Amounts> =
            self.expired.iter().map(|resource| (resource.clone(), Amounts::default())).collect();
        let serving = self.resources.iter();
        amounts.extend(serving.map(|(resource, entry)| (resource.clone(), entry.amounts())));
        (amounts, !expired.is_empty())
    }

    /// Notes that `ids` are on their way into a container; [`Self::end_transit`] ends it.
    pub(super) fn begin_transit(&mut self, resource: &str, ids: Ids, during: Rpc) -> u64 {
        let number = self.number();
        let resource = resource.into();
        let transit = Transit { resource, ids, during };
        self.transits.insert(number, transit);
        number
    }

    pub(super) fn end_transit(&mut self, number: u64) {
        self.transits.remove(&number);
    }
}

impl Resource {
    pub(super) fn amounts(&self) -> Amounts {
        Amounts {
            capacity: self.healthy.len() + self.unhealthy.len(),
            allocatable: self.healthy.len(),
        }
    }
}
