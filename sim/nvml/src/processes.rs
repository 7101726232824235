//! Which processes a card shows, in the lists that `nvidia-smi` shows as `C` and `M+C`.

use std::time::SystemTime;

use mpshare_sim_state::{ProcessKind, SimProcess};

use crate::abi::{Handle, ProcessInfo, ProcessInfoV1, ProcessUtilizationSample};
use crate::device::Device;
use crate::session;
use crate::status::Status;

/// GPU and compute instance of a process on a card without MIG.
const NO_INSTANCE: u32 = u32::MAX;

/// One of NVML's lists; a process is in exactly one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum List {
    /// Contexts without MPS, and the MPS servers: `C`.
    Compute,
    /// Clients of an MPS server: `M+C`.
    Mps,
    /// Nothing here draws.
    Graphics,
}

impl List {
    fn holds(self, process: &SimProcess) -> bool {
        match self {
            Self::Compute => !is_client(process),
            Self::Mps => is_client(process),
            Self::Graphics => false,
        }
    }
}

fn is_client(process: &SimProcess) -> bool {
    matches!(process.kind, ProcessKind::MpsClient { .. })
}

/// The processes on one card.
pub(crate) fn running(handle: Handle, list: List) -> Result<Vec<ProcessInfo>, Status> {
    on_card(handle, list, |process| ProcessInfo {
        pid: process.id.pid.unsigned_abs(),
        used_gpu_memory: process.used_mib << 20,
        gpu_instance_id: NO_INSTANCE,
        compute_instance_id: NO_INSTANCE,
    })
}

/// The same in the form before instances existed.
pub(crate) fn running_v1(handle: Handle, list: List) -> Result<Vec<ProcessInfoV1>, Status> {
    on_card(handle, list, |process| ProcessInfoV1 {
        pid: process.id.pid.unsigned_abs(),
        used_gpu_memory: process.used_mib << 20,
    })
}

/// One sample for each process; nothing here computes, so all are at rest.
pub(crate) fn utilization(handle: Handle) -> Result<Vec<ProcessUtilizationSample>, Status> {
    let device = Device::of(handle)?;
    let gpu = device.gpu()?;
    let on_card = device.state.processes.iter().filter(|process| process.gpu == gpu.uuid);
    let now = microseconds_since_epoch();
    let samples: Vec<_> = on_card
        .map(|process| ProcessUtilizationSample {
            pid: process.id.pid.unsigned_abs(),
            time_stamp: now,
            ..ProcessUtilizationSample::default()
        })
        .collect();
    if samples.is_empty() { Err(Status::NOT_FOUND) } else { Ok(samples) }
}

fn microseconds_since_epoch() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The name of the process with `pid`, on whichever card it is.
pub(crate) fn name(pid: u32) -> Result<String, Status> {
    let state = session::state()?;
    let process = state.processes.into_iter().find(|process| process.id.pid.unsigned_abs() == pid);
    process.map(|process| process.name).ok_or(Status::NOT_FOUND)
}

fn on_card<T>(
    handle: Handle,
    list: List,
    info: impl Fn(&SimProcess) -> T,
) -> Result<Vec<T>, Status> {
    let device = Device::of(handle)?;
    let gpu = device.gpu()?;
    let mut seen = Vec::new();
    let mut infos = Vec::new();
    for process in &device.state.processes {
        if process.gpu == gpu.uuid && list.holds(process) && !seen.contains(&process.id.pid) {
            seen.push(process.id.pid);
            infos.push(info(process));
        }
    }
    Ok(infos)
}
