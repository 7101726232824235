//! The processes that use a card, and the pods that they belong to.
//!
//! They come from NVML, which costs next to nothing, and not from the daemon, where each question
//! is a process.

use std::time::{Duration, Instant};

use mpshare_api::status::ClientStatus;
use mpshare_core::{GpuUuid, Memory};
use mpshare_mps::{ContainerOf, Pid};
use mpshare_nvml::{GpuProcess, NvmlError};
use tracing::debug;

use crate::options::Ports;

/// How often processes past MPS are looked for while a card has clients.
const BUSY_EVERY: Duration = Duration::from_secs(2);

/// How often they are without.
const IDLE_EVERY: Duration = Duration::from_secs(9);

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
        .map(|process| {
            let home = container_of(ports, process.pid);
            ClientStatus {
                pid: process.pid,
                memory_mib: process.memory.map(Memory::mib),
                pod_uid: home.as_ref().map(|home| home.pod.to_string()),
                container_id: home.and_then(|home| Some(home.container?.to_string())),
            }
        })
        .collect();
    clients.sort_by_key(|client| client.pid);
    Some(clients)
}

fn container_of(ports: &Ports, pid: i32) -> Option<ContainerOf> {
    ports.cgroup_proc.container(Pid::new(pid)?).ok()?
}

/// Processes on a shared card that are neither its server nor that server's clients. Under
/// `EXCLUSIVE_PROCESS` there are none, so they are seldom looked for.
#[derive(Default)]
pub(crate) struct Bypassing {
    listed: Option<Instant>,
    processes: Vec<ClientStatus>,
}

impl Bypassing {
    /// As they were last seen.
    pub(crate) fn processes(&self) -> &[ClientStatus] {
        &self.processes
    }

    /// Looks again if it is time to.
    pub(crate) fn refresh(
        &mut self,
        ports: &Ports,
        gpu: &GpuUuid,
        (server, clients): (Option<Pid>, &[ClientStatus]),
    ) {
        let every =
            if clients.is_empty() && self.processes.is_empty() { IDLE_EVERY } else { BUSY_EVERY };
        if self.listed.is_some_and(|listed| listed.elapsed() < every) {
            return;
        }
        self.listed = Some(Instant::now());
        let server = server.map(Pid::get);
        let is_ours =
            |pid: i32| Some(pid) == server || clients.iter().any(|client| client.pid == pid);
        let listed = on_whole_card(ports, gpu).unwrap_or_default();
        self.processes = listed.into_iter().filter(|process| !is_ours(process.pid)).collect();
    }
}
