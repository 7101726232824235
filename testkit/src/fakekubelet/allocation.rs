//! Which devices a container gets and what the plugin says to it: `devicesToAllocate` and
//! `Allocate` of the kubelet's device manager, step by step as in `facts/kubernetes.md` 1.5 and
//! 1.6, for the topology manager's policy `none`.

use std::collections::BTreeMap;

use mpshare_kubelet::device_plugin::{
    AllocateRequest, ContainerAllocateRequest, ContainerAllocateResponse,
    ContainerPreferredAllocationRequest, PreferredAllocationRequest,
};

use super::devices::{Devices, Endpoint, Holding, Ids};
use super::node::Node;
use super::plugin::write_checkpoint;
use super::pod::{ContainerKind, ContainerSpec, PodSpec};
use super::violation::{Rpc, Violation};

/// Why a container got no devices. The text ends up in the pod's message.
#[derive(Debug, thiserror::Error)]
pub(super) enum AllocationError {
    #[error("pod \"{0}\" container \"{1}\" changed request for resource \"{2}\" from {3} to {4}")]
    ChangedRequest(String, String, String, usize, usize),
    #[error("cannot allocate unregistered device {0}")]
    Unregistered(String),
    #[error("no healthy devices present; cannot allocate unhealthy devices {0}")]
    NoHealthyDevices(String),
    #[error(
        "previously allocated devices are no longer healthy; cannot allocate unhealthy devices {0}"
    )]
    NoLongerHealthy(String),
    #[error(
        "requested number of devices unavailable for {resource}. Requested: {requested}, Available: {available}"
    )]
    Unavailable {
        resource: String,
        requested: usize,
        available: usize,
    },
    #[error("unknown Device Plugin {0}")]
    UnknownPlugin(String),
    #[error("endpoint not found in cache for a registered resource: {0}")]
    NoEndpoint(String),
    #[error("endpoint {0} has been stopped")]
    Stopped(String),
    #[error("{0}")]
    Rpc(String),
    #[error("device plugin {0} rpc failed with err: {1}")]
    WrappedRpc(Rpc, String),
    #[error("no containers return in allocation response")]
    EmptyReply,
    #[error("the kubelet has panicked: nil device among {0}")]
    Panicked(String),
}

/// Ids of an earlier init container that later containers of the same pod take first.
pub(super) type Reusable = BTreeMap<String, Ids>;

/// Whether containers that run already are left alone: after a restart of the kubelet, before all
/// its sources of pods are ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Occasion {
    /// A pod that is new to the node.
    Admission,
    /// A pod that the kubelet finds again after its restart.
    Readmission,
}

/// Allocates for all containers of a pod: init containers and sidecars, then app containers.
pub(super) async fn allocate_pod(
    node: &Node,
    pod: &PodSpec,
    occasion: Occasion,
) -> Result<(), AllocationError> {
    let mut reusable = Reusable::new();
    for container in pod.init_containers().chain(pod.app_containers()) {
        allocate_container(node, pod, container, &mut reusable, occasion).await?;
        update_reusable(node, pod, container, &mut reusable);
    }
    Ok(())
}

/// A regular init container leaves its devices to those that come later; others use them up.
fn update_reusable(node: &Node, pod: &PodSpec, container: &ContainerSpec, reusable: &mut Reusable) {
    node.read(|state| {
        let containers = state.devices.pods.get(&pod.uid);
        let Some(resources) = containers.and_then(|c| c.get(&container.name)) else {
            return;
        };
        for (resource, holding) in resources {
            let ids = reusable.entry(resource.clone()).or_default();
            match container.kind {
                ContainerKind::Init => ids.extend(holding.ids.iter().cloned()),
                ContainerKind::Sidecar | ContainerKind::App => {
                    ids.retain(|id| !holding.ids.contains(id));
                }
            }
        }
    });
}

/// Allocates one container's resources, in random order.
pub(super) async fn allocate_container(
    node: &Node,
    pod: &PodSpec,
    container: &ContainerSpec,
    reusable: &mut Reusable,
    occasion: Occasion,
) -> Result<(), AllocationError> {
    let mut allocated_any = false;
    let mut freed = false;
    for (resource, count) in node.shuffled(&container.limits) {
        if !node.read(|state| state.devices.is_device_resource(resource)) {
            continue;
        }
        if !freed {
            node.change(super::node::State::free_inactive);
            freed = true;
        }
        let request = Request {
            node,
            pod,
            container,
            resource,
            count: *count,
        };
        let reuse = reusable.entry(resource.clone()).or_default();
        let ids = request.devices_to_allocate(reuse, occasion).await?;
        if !ids.is_empty() {
            request.allocate(ids).await?;
            allocated_any = true;
        }
    }
    if allocated_any {
        node.change(|state| write_checkpoint(node, &state.devices));
    }
    Ok(())
}

/// A container's request for one resource.
struct Request<'a> {
    node: &'a Node,
    pod: &'a PodSpec,
    container: &'a ContainerSpec,
    resource: &'a str,
    count: usize,
}

/// What is known before the plugin is asked.
enum Start {
    /// Nothing is needed, or what is reused is enough.
    Enough(Ids),
    /// `taken` is reused, the rest is to be chosen from `available`.
    Choose { taken: Ids, available: Ids },
}

impl Request<'_> {
    async fn devices_to_allocate(
        &self,
        reusable: &Ids,
        occasion: Occasion,
    ) -> Result<Ids, AllocationError> {
        let running = occasion == Occasion::Readmission && self.is_running();
        let start = self
            .node
            .change(|state| self.start(&mut state.devices, reusable, running))?;
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
        let wants = endpoint
            .options
            .is_some_and(|options| options.get_preferred_allocation_available);
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

    async fn allocate(&self, ids: Ids) -> Result<(), AllocationError> {
        let transit = Transit::begin(self, ids.clone(), Rpc::Allocate);
        let result = self.call_allocate(&ids).await;
        drop(transit);
        let reply = match result {
            Ok(reply) => reply,
            Err(error) => {
                self.node
                    .change(|state| state.devices.recompute_allocated());
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
        let unknown = self
            .node
            .read(|state| state.devices.unknown(self.resource, ids));
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
        self.node
            .change(|state| state.devices.recompute_allocated());
        Err(AllocationError::Panicked(unknown.join(", ")))
    }

    fn endpoint(&self) -> Option<Endpoint> {
        self.node
            .read(|state| state.devices.endpoints.get(self.resource).cloned())
    }

    fn client(
        &self,
        endpoint: &Endpoint,
    ) -> Result<
        mpshare_kubelet::device_plugin::DevicePluginClient<tonic::transport::Channel>,
        AllocationError,
    > {
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
        self.node
            .change(|state| state.devices.end_transit(self.number));
    }
}

/// A call that fails when the kubelet closes the connection.
pub(super) async fn unless_closed<T>(
    endpoint: &Endpoint,
    call: impl Future<Output = Result<T, tonic::Status>>,
) -> Result<T, tonic::Status> {
    tokio::select! {
        result = call => result,
        () = endpoint.closed.cancelled() => Err(tonic::Status::cancelled("grpc: the client connection is closing")),
    }
}

/// A status as Go prints it; it is what users read in the pod's message.
pub(super) fn go_error(status: &tonic::Status) -> String {
    let code = format!("{:?}", status.code()).replace("Cancelled", "Canceled");
    format!("rpc error: code = {code} desc = {}", status.message())
}
