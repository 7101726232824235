//! The driver through NVIDIA's management library.
//!
//! Every call asks the library anew: handles are cheap, and a card that fell off the bus and came
//! back gets a new one. The library stays loaded for the life of the process.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use mpshare_core::{GpuUuid, Inventory, Memory};
use nvml_wrapper::enum_wrappers::device::ComputeMode as Mode;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError as Code;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml};

use crate::error::NvmlError;
use crate::inventory::{ComputeMode, GpuInventory, GpuProcess, HealthEvent};

mod card;
mod events;
mod refusal;

use events::Events;
use refusal::{Subject, refusal};

/// The soname: what the loader looks for.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// [`GpuInventory`] over `libnvidia-ml.so.1`.
#[derive(Debug)]
pub struct NvmlInventory {
    nvml: &'static Nvml,
    /// Where PCI devices tell their NUMA node.
    sysfs: PathBuf,
    events: Mutex<Events>,
}

impl NvmlInventory {
    /// Loads the library, from `library` if given, and connects to the driver.
    pub fn open(library: Option<&Path>) -> Result<Self, NvmlError> {
        Self::open_with_sysfs(library, Path::new("/sys"))
    }

    /// Like [`NvmlInventory::open`], where `sysfs` is mounted elsewhere.
    pub fn open_with_sysfs(library: Option<&Path>, sysfs: &Path) -> Result<Self, NvmlError> {
        let library = library.unwrap_or(Path::new(LIBRARY));
        let nvml = Nvml::builder()
            .lib_path(library.as_os_str())
            .init()
            .map_err(|code| refusal(code, Subject::Library(library), "start"))?;
        // The event set borrows the library, and both live as long as the process. Only a
        // successful start gets here, so waiting for a driver loses nothing.
        let nvml: &'static Nvml = Box::leak(Box::new(nvml));
        Ok(Self { nvml, sysfs: sysfs.to_owned(), events: Mutex::new(Events::default()) })
    }

    fn device(&self, gpu: &GpuUuid) -> Result<Device<'static>, NvmlError> {
        match self.nvml.device_by_uuid(gpu.as_str()) {
            Ok(device) => Ok(device),
            Err(Code::NotFound) => Err(NvmlError::NoSuchGpu(gpu.clone())),
            Err(code) => Err(refusal(code, Subject::Gpu(gpu), "look the card up")),
        }
    }
}

impl GpuInventory for NvmlInventory {
    fn inventory(&self) -> Result<Inventory, NvmlError> {
        let driver = self
            .nvml
            .sys_driver_version()
            .map_err(|code| refusal(code, Subject::Driver, "tell its version"))?
            .parse()?;
        let count = device_count(self.nvml)?;
        let mut gpus = Vec::new();
        for index in 0..count {
            match card::read(self.nvml, index, &self.sysfs) {
                Ok(gpu) => gpus.push(gpu),
                Err(error) if error.is_lost() => {
                    tracing::debug!(index, %error, "a card is left out of the inventory");
                }
                Err(error) => return Err(error),
            }
        }
        gpus.sort_by_key(|gpu| gpu.index);
        Ok(Inventory { driver, gpus })
    }

    fn probe(&self, gpu: &GpuUuid) -> Result<(), NvmlError> {
        // A handle may outlive its card; the memory can only be asked of a card that answers.
        let _info = self
            .device(gpu)?
            .memory_info()
            .map_err(|code| refusal(code, Subject::Gpu(gpu), "read the memory"))?;
        Ok(())
    }

    fn compute_mode(&self, gpu: &GpuUuid) -> Result<Option<ComputeMode>, NvmlError> {
        match self.device(gpu)?.compute_mode() {
            Ok(Mode::Default) => Ok(Some(ComputeMode::Default)),
            Ok(Mode::ExclusiveProcess | Mode::ExclusiveThread) => {
                Ok(Some(ComputeMode::ExclusiveProcess))
            }
            Ok(Mode::Prohibited) => Ok(Some(ComputeMode::Prohibited)),
            Err(Code::NotSupported) => Ok(None),
            Err(code) => Err(refusal(code, Subject::Gpu(gpu), "read the compute mode")),
        }
    }

    fn set_compute_mode(&self, gpu: &GpuUuid, mode: ComputeMode) -> Result<(), NvmlError> {
        let wanted = match mode {
            ComputeMode::Default => Mode::Default,
            ComputeMode::ExclusiveProcess => Mode::ExclusiveProcess,
            ComputeMode::Prohibited => Mode::Prohibited,
        };
        self.device(gpu)?.set_compute_mode(wanted).map_err(|code| {
            let action = format!("set the compute mode of `{gpu}` to {mode}");
            refusal(code, Subject::Gpu(gpu), &action)
        })
    }

    fn mps_processes(&self, gpu: &GpuUuid) -> Result<Vec<GpuProcess>, NvmlError> {
        let listed = self.device(gpu)?.mps_running_compute_processes();
        processes(listed, gpu, "list the MPS clients")
    }

    fn compute_processes(&self, gpu: &GpuUuid) -> Result<Vec<GpuProcess>, NvmlError> {
        let listed = self.device(gpu)?.running_compute_processes();
        processes(listed, gpu, "list the processes")
    }

    fn wait_for_event(&self, timeout: Duration) -> Result<Option<HealthEvent>, NvmlError> {
        let deadline = Instant::now() + timeout;
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.next(self.nvml, deadline)
    }
}

fn device_count(nvml: &Nvml) -> Result<u32, NvmlError> {
    nvml.device_count().map_err(|code| refusal(code, Subject::Driver, "count its cards"))
}

fn processes(
    listed: Result<Vec<ProcessInfo>, Code>,
    gpu: &GpuUuid,
    action: &str,
) -> Result<Vec<GpuProcess>, NvmlError> {
    let listed = listed.map_err(|code| refusal(code, Subject::Gpu(gpu), action))?;
    let mut processes: Vec<GpuProcess> = listed
        .into_iter()
        .filter_map(|info| {
            // 0: the process is in a pid namespace that the caller can't see into.
            let pid = i32::try_from(info.pid).ok().filter(|pid| *pid > 0)?;
            let memory = match info.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(Memory::from_bytes_floor(bytes)),
                UsedGpuMemory::Unavailable => None,
            };
            Some(GpuProcess { pid, memory })
        })
        .collect();
    processes.sort_unstable();
    Ok(processes)
}
