//! Pod resources API `v1`: generated messages, client and server, and the question that a
//! device plugin has for it: who holds which device ids.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use tonic::transport::Channel;

use crate::socket::{ConnectError, connect_lazy};

pub use crate::generated::pod_resources::pod_resources_lister_client::PodResourcesListerClient;
pub use crate::generated::pod_resources::pod_resources_lister_server::{
    PodResourcesLister, PodResourcesListerServer,
};
pub use crate::generated::pod_resources::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, CdiDevice, ClaimResource,
    ContainerDevices, ContainerMemory, ContainerResources, DynamicResource, GetPodResourcesRequest,
    GetPodResourcesResponse, ListPodResourcesRequest, ListPodResourcesResponse, NumaNode,
    PodResources, TopologyInfo,
};

/// A full node's answer, with an entry per device id, can pass tonic's default of 4 MiB.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// A container together with one resource that it holds devices of. Pod UIDs aren't known to
/// this API.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Name of the container: an app container or a sidecar.
    pub container: String,
    /// Extended resource, such as `nvidia.com/gpu`.
    pub resource: String,
}

/// The kubelet didn't tell who holds what.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The kubelet answered with an error: among others `ResourceExhausted` above 100 calls a
    /// second by all users of the socket together, or it can't be dialled.
    #[error("the kubelet did not list pod resources")]
    Failed(#[source] Box<tonic::Status>),
    /// The kubelet didn't answer in time.
    #[error("the kubelet did not list pod resources within {0:?}")]
    Deadline(Duration),
}

/// A client of the pod resources socket at `socket`. It dials at the first call and again after
/// the kubelet restarts. Has to be called inside a tokio runtime.
pub fn lister(socket: &Path) -> Result<PodResourcesListerClient<Channel>, ConnectError> {
    let channel = connect_lazy(socket)?;
    Ok(PodResourcesListerClient::new(channel).max_decoding_message_size(MAX_ANSWER_BYTES))
}

/// Asks the kubelet who holds which device ids, within `deadline`: active pods only, so the
/// devices of an ended pod are missing as soon as its containers have stopped.
pub async fn list(
    client: &mut PodResourcesListerClient<Channel>,
    deadline: Duration,
) -> Result<BTreeMap<Holder, BTreeSet<String>>, ListError> {
    let call = client.list(ListPodResourcesRequest {});
    match tokio::time::timeout(deadline, call).await {
        Ok(Ok(answer)) => Ok(held_devices(answer.into_inner())),
        Ok(Err(status)) => Err(ListError::Failed(Box::new(status))),
        Err(_) => Err(ListError::Deadline(deadline)),
    }
}

/// Groups an answer by holder. The kubelet sends one entry per device id and NUMA node, so a
/// device of two NUMA nodes comes twice; here it is one.
fn held_devices(answer: ListPodResourcesResponse) -> BTreeMap<Holder, BTreeSet<String>> {
    let mut held: BTreeMap<Holder, BTreeSet<String>> = BTreeMap::new();
    for pod in answer.pod_resources {
        for container in pod.containers {
            for entry in container.devices {
                let holder = Holder {
                    namespace: pod.namespace.clone(),
                    pod: pod.name.clone(),
                    container: container.name.clone(),
                    resource: entry.resource_name,
                };
                held.entry(holder).or_default().extend(entry.device_ids);
            }
        }
    }
    held
}

#[cfg(test)]
mod tests;
