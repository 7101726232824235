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
    open: Mutex<Option<Arc<NvmlInventory>>>,
}

impl ReopeningInventory {
    /// Opens nothing yet; `library` is for [`NvmlInventory::open`].
    pub const fn new(library: Option<PathBuf>) -> Self {
        Self { library, open: Mutex::new(None) }
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
        let inventory = Arc::new(NvmlInventory::open(self.library.as_deref())?);
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
