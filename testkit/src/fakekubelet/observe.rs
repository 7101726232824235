//! What a test can see of a [`FakeKubelet`]: the node's status, device lists, violations.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::FakeKubelet;
use super::devices::{Amounts, DeviceList, Ids, Resource};
use super::node::{PodChange, WaitError};
use super::options::Options;
use super::plugin::write_checkpoint;
use super::violation::Violation;

impl FakeKubelet {
    /// Status changes of all pods from now on.
    pub fn subscribe(&self) -> mpsc::UnboundedReceiver<PodChange> {
        self.node.subscribe()
    }

    /// How the kubelet was set up.
    pub fn options(&self) -> &Options {
        &self.node.options
    }

    /// Capacity and allocatable of all resources that a plugin ever registered, as the next
    /// status sync would write them to the Node.
    pub fn node_status(&self) -> BTreeMap<String, Amounts> {
        let grace = self.node.options.endpoint_grace;
        self.node.change(|state| {
            let (amounts, expired) = state.devices.capacity(Instant::now(), grace);
            if expired {
                write_checkpoint(&self.node, &state.devices);
            }
            amounts
        })
    }

    /// Capacity of a resource, 0 if it isn't known.
    pub fn capacity(&self, resource: &str) -> usize {
        let amounts = self.node_status().remove(resource);
        amounts.unwrap_or_default().capacity
    }

    /// Allocatable of a resource, 0 if it isn't known. Allocated devices count.
    pub fn allocatable(&self, resource: &str) -> usize {
        let amounts = self.node_status().remove(resource);
        amounts.unwrap_or_default().allocatable
    }

    /// Ids that the kubelet counts as allocated. Those of pods that ended stay until the next
    /// allocation or pod resources `List`.
    pub fn allocated(&self, resource: &str) -> Ids {
        let ids = self.node.read(|state| state.devices.allocated.get(resource).cloned());
        ids.unwrap_or_default()
    }

    /// Ids of the latest list, with their health.
    pub fn device_ids(&self, resource: &str) -> BTreeMap<String, String> {
        self.node.read(|state| {
            let known = state.devices.resources.get(resource).map(|r| &r.known);
            let devices = known.into_iter().flat_map(BTreeMap::values);
            devices.map(|d| (d.id.clone(), d.health.clone())).collect()
        })
    }

    /// The latest device list of a resource since the kubelet's process started.
    pub fn device_list(&self, resource: &str) -> Option<DeviceList> {
        self.node.read(|state| state.devices.resources.get(resource)?.last_list)
    }

    /// Waits until allocatable of `resource` is `count`, and gives the list that made it so, if
    /// it was a list.
    pub async fn wait_allocatable(
        &self,
        resource: &str,
        count: usize,
        deadline: Duration,
    ) -> Result<Option<DeviceList>, WaitError> {
        let what = format!("allocatable `{resource}` is {count}");
        let found = self.node.wait(&what, deadline, |state| {
            let entry = state.devices.resources.get(resource);
            let amounts = entry.map(Resource::amounts);
            let matches = amounts.unwrap_or_default().allocatable == count;
            matches.then(|| entry.and_then(|entry| entry.last_list))
        });
        found.await.map_err(|mut error| {
            error.what = format!("{what}; it is {}", self.allocatable(resource));
            error
        })
    }

    /// Waits for the first device list of `resource` that came after `after` and satisfies
    /// `check`.
    pub async fn wait_list(
        &self,
        resource: &str,
        after: Instant,
        deadline: Duration,
        check: impl Fn(&Amounts) -> bool,
    ) -> Result<DeviceList, WaitError> {
        let what = format!("a new device list of `{resource}`");
        let found = self.node.wait(&what, deadline, |state| {
            let list = state.devices.resources.get(resource)?.last_list?;
            (list.at > after && check(&list.amounts)).then_some(list)
        });
        found.await
    }

    /// What the plugin did so far that would have broken a kubelet. Empty is what a test wants.
    pub fn violations(&self) -> Vec<Violation> {
        self.node.violations()
    }
}
