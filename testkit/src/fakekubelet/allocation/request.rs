//! One container's request for one resource: `devicesToAllocate` step by step, and the two calls
//! to the plugin.

use mpshare_kubelet::device_plugin::{
    AllocateRequest, ContainerAllocateRequest, ContainerAllocateResponse,
    ContainerPreferredAllocationRequest, DevicePluginClient, PreferredAllocationRequest,
};
use tonic::transport::Channel;

use super::{AllocationError, Occasion, go_error, unless_closed};
use crate::fakekubelet::devices::{Devices, Endpoint, Holding, Ids};
use crate::fakekubelet::node::Node;
use crate::fakekubelet::pod::{ContainerSpec, PodSpec};
use crate::fakekubelet::violation::{Rpc, Violation};

/// A container's request for one resource.
pub(super) struct Request<'a> {
    pub(super) node: &'a Node,
    pub(super) pod: &'a PodSpec,
    pub(super) container: &'a ContainerSpec,
    pub(super) resource: &'a str,
    pub(super) count: usize,
}

/// What is known before the plugin is asked.
enum Start {
    /// Nothing is needed, or what is reused is enough.
    Enough(Ids),
    /// `taken` is reused, the rest is to be chosen from `available`.
    Choose { taken: Ids, available: Ids },
}

impl Request<'_> {
    /// Chooses devices for the request; none if nothing is to be allocated.
    pub(super) async fn devices_to_allocate(
        &self,
        reusable: &Ids,
        occasion: Occasion,
    ) -> Result<Ids, AllocationError> {
        let running = occasion == Occasion::Readmission && self.is_running();
        let start = self.node.change(|state| self.start(&mut state.devices, reusable, running))?;
        let (taken, available) = match start {
            Start::Enough(ids) => return Ok(ids),
            Start::Choose { taken, available } => (taken, available),
        };
        let offered: Ids = available.union(&taken).cloned().collect();
        let transit = Transit::begin(self, offered, Rpc::PreferredAllocation);
        let preferred = self.preferred(&available, &taken).await?;
        let chosen = self.choose(taken, &available, &preferred);
        drop(transit);
        Ok(chosen)
    }

    fn is_running(&self) -> bool {
        self.node.read(|state| {
            let record = state.pods.get(&self.pod.uid);
            let status = record.and_then(|r| r.status.containers.get(&self.container.name));
            status.is_some_and(|container| container.pid().is_some())
        })
    }

    /// Steps 1 to 8 of `facts/kubernetes.md` 1.5.
    fn start(
        &self,
        devices: &mut Devices,
        reusable: &Ids,
        running: bool,
    ) -> Result<Start, AllocationError> {
        let resource = self.resource.to_owned();
        let held = devices.holding(&self.pod.uid, &self.container.name, self.resource);
        let held = held.map(|holding| holding.ids.clone());
        if let Some(held) = &held
            && held.len() != self.count
        {
            let (pod, container) = (self.pod.uid.clone(), self.container.name.clone());
            return Err(AllocationError::ChangedRequest(
                pod,
                container,
                resource,
                held.len(),
                self.count,
            ));
        }
        if running {
            return Ok(Start::Enough(Ids::new()));
        }
        let Some(entry) = devices.resources.get(self.resource) else {
            return Err(AllocationError::Unregistered(resource));
        };
        if entry.healthy.is_empty() {
            return Err(AllocationError::NoHealthyDevices(resource));
        }
        if let Some(held) = held {
            return if held.is_subset(&entry.healthy) {
                Ok(Start::Enough(Ids::new()))
            } else {
                Err(AllocationError::NoLongerHealthy(resource))
            };
        }
        self.reuse(devices, reusable)
    }

    fn reuse(&self, devices: &mut Devices, reusable: &Ids) -> Result<Start, AllocationError> {
        let reused = self.node.shuffled(reusable).into_iter().take(self.count);
        let taken: Ids = reused.cloned().collect();
        let needed = self.count - taken.len();
        if needed == 0 {
            return Ok(Start::Enough(taken));
        }
        let allocated = devices.allocated.get(self.resource);
        let healthy = devices.resources.get(self.resource);
        let available: Ids = healthy
            .into_iter()
            .flat_map(|entry| &entry.healthy)
            .filter(|id| allocated.is_none_or(|ids| !ids.contains(*id)) && !taken.contains(*id))
            .cloned()
            .collect();
        if available.len() < needed {
            return Err(AllocationError::Unavailable {
                resource: self.resource.to_owned(),
                requested: needed,
                available: available.len(),
            });
        }
        Ok(Start::Choose { taken, available })
    }

    /// The plugin's advice; nothing if it doesn't want to be asked.
    async fn preferred(&self, available: &Ids, taken: &Ids) -> Result<Ids, AllocationError> {
        let endpoint = self.endpoint();
        let endpoint =
            endpoint.ok_or_else(|| AllocationError::NoEndpoint(self.resource.to_owned()))?;
        let wants =
            endpoint.options.is_some_and(|options| options.get_preferred_allocation_available);
        if !wants {
            return Ok(Ids::new());
        }
        let offered = self.node.shuffled(available.union(taken).cloned());
        let request = PreferredAllocationRequest {
            container_requests: vec![ContainerPreferredAllocationRequest {
                available_device_i_ds: offered,
                must_include_device_i_ds: self.node.shuffled(taken.iter().cloned()),
                allocation_size: i32::try_from(self.count).unwrap_or(i32::MAX),
            }],
        };
        let mut client = self.client(&endpoint)?;
        let asking = unless_closed(&endpoint, client.get_preferred_allocation(request));
        let rpc = Rpc::PreferredAllocation;
        match self.node.call(rpc, self.resource, asking).await {
            Ok(response) => {
                let first = response.into_inner().container_responses.into_iter().next();
                Ok(first.map_or_else(Ids::new, |ids| ids.device_i_ds.into_iter().collect()))
            }
            Err(status) => Err(AllocationError::WrappedRpc(rpc, go_error(&status))),
        }
    }

    /// Takes what was preferred and available, then whatever is available, each in random order,
    /// and marks it as allocated.
    fn choose(&self, taken: Ids, available: &Ids, preferred: &Ids) -> Ids {
        let needed = self.count - taken.len();
        let first = self.node.shuffled(available.intersection(preferred));
        let then = self.node.shuffled(available.difference(preferred));
        let more = first.into_iter().chain(then).take(needed).cloned();
        let mut chosen = taken;
        chosen.extend(more);
        self.node.change(|state| {
            let allocated = state.devices.allocated.entry(self.resource.to_owned());
            allocated.or_default().extend(chosen.iter().cloned());
        });
        chosen
    }

    /// Tells the plugin and keeps its reply.
    pub(super) async fn allocate(&self, ids: Ids) -> Result<(), AllocationError> {
        let transit = Transit::begin(self, ids.clone(), Rpc::Allocate);
        let result = self.call_allocate(&ids).await;
        drop(transit);
        let reply = match result {
            Ok(reply) => reply,
            Err(error) => {
                self.node.change(|state| state.devices.recompute_allocated());
                return Err(error);
            }
        };
        self.check_known(&ids)?;
        self.node.change(|state| {
            let holding = Holding { ids, reply };
            let (pod, container) = (&self.pod.uid, &self.container.name);
            state.devices.hold(pod, container, self.resource, holding);
        });
        Ok(())
    }

    async fn call_allocate(&self, ids: &Ids) -> Result<ContainerAllocateResponse, AllocationError> {
        let endpoint = self.endpoint();
        let endpoint =
            endpoint.ok_or_else(|| AllocationError::UnknownPlugin(self.resource.to_owned()))?;
        let request = AllocateRequest {
            container_requests: vec![ContainerAllocateRequest {
                devices_ids: self.node.shuffled(ids.iter().cloned()),
            }],
        };
        let mut client = self.client(&endpoint)?;
        let asking = unless_closed(&endpoint, client.allocate(request));
        let answer = self.node.call(Rpc::Allocate, self.resource, asking).await;
        let response = answer.map_err(|status| AllocationError::Rpc(go_error(&status)))?;
        let first = response.into_inner().container_responses.into_iter().next();
        first.ok_or(AllocationError::EmptyReply)
    }

    /// After the reply the kubelet looks the devices up without a check.
    fn check_known(&self, ids: &Ids) -> Result<(), AllocationError> {
        let unknown = self.node.read(|state| state.devices.unknown(self.resource, ids));
        for device in &unknown {
            self.node.record(Violation::DeviceVanished {
                resource: self.resource.to_owned(),
                device: device.clone(),
                during: Rpc::Allocate,
            });
        }
        if unknown.is_empty() {
            return Ok(());
        }
        self.node.change(|state| state.devices.recompute_allocated());
        Err(AllocationError::Panicked(unknown.join(", ")))
    }

    fn endpoint(&self) -> Option<Endpoint> {
        self.node.read(|state| state.devices.endpoints.get(self.resource).cloned())
    }

    fn client(&self, endpoint: &Endpoint) -> Result<DevicePluginClient<Channel>, AllocationError> {
        let client = endpoint.client.clone();
        client.ok_or_else(|| AllocationError::Stopped(self.resource.to_owned()))
    }
}

/// Ids on their way into a container, until dropped.
struct Transit<'a> {
    node: &'a Node,
    number: u64,
}

impl<'a> Transit<'a> {
    fn begin(request: &Request<'a>, ids: Ids, during: Rpc) -> Self {
        let node = request.node;
        let number =
            node.change(|state| state.devices.begin_transit(request.resource, ids, during));
        Self { node, number }
    }
}

impl Drop for Transit<'_> {
    fn drop(&mut self) {
        self.node.change(|state| state.devices.end_transit(self.number));
    }
}
