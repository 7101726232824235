//! Which devices a container gets and what the plugin says to it: `devicesToAllocate` and
//! `Allocate` of the kubelet's device manager, step by step as in `facts/kubernetes.md` 1.5 and
//! 1.6, for the topology manager's policy `none`.

use std::collections::BTreeMap;

use super::devices::{Endpoint, Ids};
use super::node::{Node, State};
use super::plugin::write_checkpoint;
use super::pod::{ContainerKind, ContainerSpec, PodSpec};
use super::violation::Rpc;
use request::Request;

mod request;

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
    Unavailable { resource: String, requested: usize, available: usize },
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
            node.change(State::free_inactive);
            freed = true;
        }
        let request = Request { node, pod, container, resource, count: *count };
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
