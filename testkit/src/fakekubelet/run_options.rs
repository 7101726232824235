//! What happens in the device manager at every creation of a container:
//! `GetDeviceRunContainerOptions` (`facts/kubernetes.md` 1.7 and 1.9).

use std::collections::BTreeSet;

use mpshare_kubelet::device_plugin::{ContainerAllocateResponse, PreStartContainerRequest};

use super::allocation::{
    AllocationError, Occasion, Reusable, allocate_container, go_error, unless_closed,
};
use super::devices::Ids;
use super::node::Node;
use super::pod::{ContainerSpec, PodSpec};
use super::status::RunOptions;
use super::violation::Rpc;

/// Calls `PreStartContainer` where the plugin wants it and merges the frozen replies.
pub(super) async fn run_options(
    node: &Node,
    pod: &PodSpec,
    container: &ContainerSpec,
) -> Result<RunOptions, AllocationError> {
    let mut missing = false;
    for (resource, count) in node.shuffled(&container.limits) {
        let known = node.read(|state| state.devices.is_device_resource(resource));
        if !known || *count == 0 {
            continue;
        }
        let held = node.read(|state| {
            let holding = state.devices.holding(&pod.uid, &container.name, resource);
            holding.map(|holding| holding.ids.clone())
        });
        missing |= held.is_none();
        pre_start(node, pod, resource, held).await?;
    }
    let active = node.read(|state| state.active_pods().contains(&pod.uid));
    if missing && active {
        let mut reusable = Reusable::new();
        allocate_container(node, pod, container, &mut reusable, Occasion::Admission).await?;
    }
    Ok(merged(node, pod, container))
}

async fn pre_start(
    node: &Node,
    pod: &PodSpec,
    resource: &str,
    held: Option<Ids>,
) -> Result<(), AllocationError> {
    let endpoint = node.read(|state| state.devices.endpoints.get(resource).cloned());
    let endpoint = endpoint.ok_or_else(|| AllocationError::NoEndpoint(resource.into()))?;
    let required = endpoint.options.is_some_and(|options| options.pre_start_required);
    if !required {
        return Ok(());
    }
    let ids = held.ok_or_else(|| {
        AllocationError::Rpc(format!(
            "no devices found allocated in local cache for pod {}",
            pod.uid
        ))
    })?;
    let mut client =
        endpoint.client.clone().ok_or_else(|| AllocationError::Stopped(resource.into()))?;
    let request = PreStartContainerRequest { devices_ids: node.shuffled(ids) };
    let call = unless_closed(&endpoint, client.pre_start_container(request));
    // This call has a deadline and holds up only its own pod, so it may be slow.
    let answer = tokio::time::timeout(node.options.pre_start_timeout, call)
        .await
        .unwrap_or_else(|_| Err(tonic::Status::deadline_exceeded("context deadline exceeded")));
    match answer {
        Ok(_) => Ok(()),
        Err(status) => {
            node.check_size(Rpc::PreStart, resource, &status);
            Err(AllocationError::WrappedRpc(Rpc::PreStart, go_error(&status)))
        }
    }
}

/// Merges the replies of a container's resources in random order: the first one wins.
fn merged(node: &Node, pod: &PodSpec, container: &ContainerSpec) -> RunOptions {
    let replies: Vec<ContainerAllocateResponse> = node.read(|state| {
        let containers = state.devices.pods.get(&pod.uid);
        let holdings = containers.and_then(|c| c.get(&container.name));
        let holdings = holdings.into_iter().flatten();
        holdings.map(|(_, holding)| holding.reply.clone()).collect()
    });
    merge(node.shuffled(replies))
}

fn merge(replies: Vec<ContainerAllocateResponse>) -> RunOptions {
    let mut options = RunOptions::default();
    let mut mounted = BTreeSet::new();
    let mut nodes = BTreeSet::new();
    for reply in replies {
        for (name, value) in reply.envs {
            options.envs.entry(name).or_insert(value);
        }
        for (key, value) in reply.annotations {
            options.annotations.entry(key).or_insert(value);
        }
        let mounts = reply.mounts.into_iter();
        options.mounts.extend(mounts.filter(|mount| mounted.insert(mount.container_path.clone())));
        let devices = reply.devices.into_iter();
        options
            .devices
            .extend(devices.filter(|device| nodes.insert(device.container_path.clone())));
        for device in reply.cdi_devices {
            if !options.cdi_devices.contains(&device) {
                options.cdi_devices.push(device);
            }
        }
    }
    options
}
