//! The driver as a node sees it over months: not there yet, there, upgraded under our feet.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mpshare_core::{GpuUuid, Inventory};

use crate::adapter::NvmlInventory;
use crate::error::NvmlError;
use crate::inventory::{ComputeMode, GpuInventory, GpuProcess, HealthEvent};

/// Opens the library at the first call, and again after it said that the driver is away.
#[derive(Debug)]
pub struct ReopeningInventory {
    library: Option<PathBuf>,
    /// Tried where `library` isn't given: the first file that is there.
    below_driver_root: Vec<PathBuf>,
    open: Mutex<Option<Arc<NvmlInventory>>>,
}

impl ReopeningInventory {
    /// Opens nothing yet; `library` is for [`NvmlInventory::open`].
    pub const fn new(library: Option<PathBuf>) -> Self {
        Self { library, below_driver_root: Vec::new(), open: Mutex::new(None) }
    }

    /// The same, which without a library takes the first of `files` that is there. They are looked
    /// for at each opening: a driver container brings them when it likes.
    #[must_use]
    pub fn or_first_of(self, files: Vec<PathBuf>) -> Self {
        Self { below_driver_root: files, ..self }
    }

    fn with<T>(
        &self,
        call: impl FnOnce(&NvmlInventory) -> Result<T, NvmlError>,
    ) -> Result<T, NvmlError> {
        let inventory = self.inventory_or_open()?;
        let result = call(&inventory);
        if result.as_ref().is_err_and(NvmlError::is_driver_away) {
            *self.lock() = None;
        }
        result
    }

    /// The lock isn't held during a call: waiting for an event takes its time.
    fn inventory_or_open(&self) -> Result<Arc<NvmlInventory>, NvmlError> {
        let mut open = self.lock();
        if let Some(inventory) = open.as_ref() {
            return Ok(Arc::clone(inventory));
        }
        let found = || self.below_driver_root.iter().find(|file| file.is_file());
        let library = self.library.as_ref().or_else(found);
        let inventory = Arc::new(NvmlInventory::open(library.map(PathBuf::as_path))?);
        *open = Some(Arc::clone(&inventory));
        Ok(inventory)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Arc<NvmlInventory>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GpuInventory for ReopeningInventory {
    fn inventory(&self) -> Result<Inventory, NvmlError> {
        self.with(GpuInventory::inventory)
    }

    fn probe(&self, gpu: &GpuUuid) -> Result<(), NvmlError> {
        self.with(|inventory| inventory.probe(gpu))
    }

    fn compute_mode(&self, gpu: &GpuUuid) -> Result<Option<ComputeMode>, NvmlError> {
        self.with(|inventory| inventory.compute_mode(gpu))
    }

    fn set_compute_mode(&self, gpu: &GpuUuid, mode: ComputeMode) -> Result<(), NvmlError> {
        self.with(|inventory| inventory.set_compute_mode(gpu, mode))
    }

    fn mps_processes(&self, gpu: &GpuUuid) -> Result<Vec<GpuProcess>, NvmlError> {
        self.with(|inventory| inventory.mps_processes(gpu))
    }

    fn compute_processes(&self, gpu: &GpuUuid) -> Result<Vec<GpuProcess>, NvmlError> {
        self.with(|inventory| inventory.compute_processes(gpu))
    }

    fn wait_for_event(&self, timeout: Duration) -> Result<Option<HealthEvent>, NvmlError> {
        self.with(|inventory| inventory.wait_for_event(timeout))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_library_below_the_driver_root_that_is_there_is_opened() {
        let dir = std::env::temp_dir().join(format!("mpshare-nvml-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("lib64")).unwrap();
        let below = ["lib", "lib64"].map(|name| dir.join(name).join("libnvidia-ml.so.1"));
        std::fs::write(&below[1], "no library").unwrap();
        let tried = |library: Option<PathBuf>| {
            let inventory = ReopeningInventory::new(library).or_first_of(below.to_vec());
            inventory.inventory().unwrap_err().to_string()
        };
        assert!(tried(None).contains(&below[1].display().to_string()), "{}", tried(None));
        let given = dir.join("given.so");
        assert!(tried(Some(given.clone())).contains(&given.display().to_string()));
        std::fs::remove_dir_all(&dir).unwrap();
        assert!(!tried(None).contains("lib64"), "{}", tried(None));
    }
}
