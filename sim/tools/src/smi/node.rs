//! The values that are shown, read from NVML once.

use nvml_wrapper::enum_wrappers::device::{ComputeMode, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml};

use super::Error;

const MIB: u64 = 1 << 20;
const LONGEST_NAME: usize = 1024;

/// Everything at one moment.
#[derive(Debug, Clone)]
pub struct Node {
    /// For example `535.161.07`.
    pub driver_version: String,
    /// For example `12.2`.
    pub cuda_version: String,
    /// The cards in question.
    pub cards: Vec<Card>,
}

/// One card.
#[derive(Debug, Clone)]
pub struct Card {
    /// NVML's index.
    pub index: u32,
    /// Product name.
    pub name: String,
    /// `GPU-` and a UUID.
    pub uuid: String,
    /// With eight digits of domain.
    pub bus_id: String,
    /// Whether the driver stays loaded.
    pub persistence: bool,
    /// Degrees Celsius.
    pub temperature: u32,
    /// Watts drawn.
    pub power: u32,
    /// Watts allowed.
    pub power_limit: u32,
    /// MiB, the reserved part included.
    pub memory_total: u64,
    /// MiB that processes hold.
    pub memory_used: u64,
    /// MiB.
    pub memory_free: u64,
    /// Per cent.
    pub utilization: u32,
    /// Current compute mode.
    pub compute_mode: ComputeMode,
    /// `None`: the card can't do MIG.
    pub mig_enabled: Option<bool>,
    /// Major and minor.
    pub compute_capability: (i32, i32),
    /// Compute processes, without MPS first.
    pub processes: Vec<Process>,
}

/// One process on a card.
#[derive(Debug, Clone)]
pub struct Process {
    /// Host PID.
    pub pid: u32,
    /// How it reaches the card.
    pub kind: Kind,
    /// What it is called.
    pub name: String,
    /// MiB, where NVML says.
    pub used: Option<u64>,
}

/// The `Type` of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `C`.
    Compute,
    /// `M+C`.
    MpsClient,
}

impl Node {
    /// Reads all cards, or the one with the index, UUID or bus id `id`.
    pub fn read(nvml: &Nvml, id: Option<&str>) -> Result<Self, Error> {
        let cuda = nvml.sys_cuda_driver_version()?;
        let devices = devices(nvml, id)?;
        let cards = devices.iter().map(|device| Card::read(nvml, device));
        Ok(Self {
            driver_version: nvml.sys_driver_version()?,
            cuda_version: format!("{}.{}", cuda / 1000, cuda % 1000 / 10),
            cards: cards.collect::<Result<_, _>>()?,
        })
    }
}

impl Card {
    fn read(nvml: &Nvml, device: &Device<'_>) -> Result<Self, NvmlError> {
        let memory = device.memory_info()?;
        let capability = device.cuda_compute_capability()?;
        Ok(Self {
            index: device.index()?,
            name: device.name()?,
            uuid: device.uuid()?,
            bus_id: device.pci_info()?.bus_id,
            persistence: device.is_in_persistent_mode()?,
            temperature: device.temperature(TemperatureSensor::Gpu)?,
            power: device.power_usage()? / 1000,
            power_limit: device.enforced_power_limit()? / 1000,
            memory_total: memory.total / MIB,
            memory_used: memory.used / MIB,
            memory_free: memory.free / MIB,
            utilization: device.utilization_rates()?.gpu,
            compute_mode: device.compute_mode()?,
            mig_enabled: device.mig_mode().ok().map(|mode| mode.current != 0),
            compute_capability: (capability.major, capability.minor),
            processes: processes(nvml, device)?,
        })
    }
}

/// The cards that `id` names; all without one.
pub(super) fn devices<'nvml>(
    nvml: &'nvml Nvml,
    id: Option<&str>,
) -> Result<Vec<Device<'nvml>>, Error> {
    let unreachable = |gpu: &str| {
        let gpu = gpu.to_owned();
        |source| Error::Unreachable { gpu, source }
    };
    let Some(id) = id else {
        let all = (0..nvml.device_count()?)
            .map(|index| nvml.device_by_index(index).map_err(unreachable(&index.to_string())));
        return all.collect();
    };
    let device = if let Ok(index) = id.parse::<u32>() {
        nvml.device_by_index(index)
    } else if id.starts_with("GPU-") {
        nvml.device_by_uuid(id)
    } else {
        nvml.device_by_pci_bus_id(id)
    };
    match device {
        Ok(device) => Ok(vec![device]),
        Err(NvmlError::NotFound | NvmlError::InvalidArg) => Err(Error::NoDevice),
        Err(source) => Err(unreachable(id)(source)),
    }
}

fn processes(nvml: &Nvml, device: &Device<'_>) -> Result<Vec<Process>, NvmlError> {
    let compute = device.running_compute_processes()?.into_iter().map(|info| (info, Kind::Compute));
    let clients =
        device.mps_running_compute_processes()?.into_iter().map(|info| (info, Kind::MpsClient));
    Ok(compute.chain(clients).map(|(info, kind)| process(nvml, &info, kind)).collect())
}

fn process(nvml: &Nvml, info: &ProcessInfo, kind: Kind) -> Process {
    Process {
        pid: info.pid,
        kind,
        name: nvml
            .sys_process_name(info.pid, LONGEST_NAME)
            .unwrap_or_else(|_| "[Not Found]".to_owned()),
        used: match info.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes / MIB),
            UsedGpuMemory::Unavailable => None,
        },
    }
}
