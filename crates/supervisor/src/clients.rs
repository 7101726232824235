//! The processes that use a card, and the pods that they belong to.
//!
//! They come from NVML, which costs next to nothing, and not from the daemon, where each question
//! is a process.

use mpshare_api::status::ClientStatus;
use mpshare_core::{GpuUuid, Memory};
use mpshare_mps::Pid;
use mpshare_nvml::{GpuProcess, NvmlError};
use tracing::debug;

use crate::options::Ports;

/// The MPS clients of a card; `None` when the driver doesn't tell.
pub(crate) fn of_card(ports: &Ports, gpu: &GpuUuid) -> Option<Vec<ClientStatus>> {
    described(ports, gpu, ports.inventory.mps_processes(gpu))
}

/// The processes on a whole card; `None` when the driver doesn't tell.
pub(crate) fn on_whole_card(ports: &Ports, gpu: &GpuUuid) -> Option<Vec<ClientStatus>> {
    described(ports, gpu, ports.inventory.compute_processes(gpu))
}

fn described(
    ports: &Ports,
    gpu: &GpuUuid,
    listed: Result<Vec<GpuProcess>, NvmlError>,
) -> Option<Vec<ClientStatus>> {
    let processes =
        listed.inspect_err(|error| debug!(%gpu, %error, "processes can't be listed")).ok()?;
    let mut clients: Vec<ClientStatus> = processes
        .into_iter()
        .map(|process| ClientStatus {
            pid: process.pid,
            memory_mib: process.memory.map(Memory::mib),
            pod_uid: pod_of(ports, process.pid),
        })
        .collect();
    clients.sort_by_key(|client| client.pid);
    Some(clients)
}

fn pod_of(ports: &Ports, pid: i32) -> Option<String> {
    let container = ports.cgroup_proc.container(Pid::new(pid)?).ok()??;
    Some(container.pod.to_string())
}
