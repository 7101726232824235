//! The supervisor with a driver that hangs.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use mpshare_api::{MpsRoot, SharedMemory};
use mpshare_core::{GpuUuid, Inventory};
use mpshare_mps::Proc;
use mpshare_nvml::{ComputeMode, GpuInventory, GpuProcess, HealthEvent, NvmlError};

use super::*;

/// Never answers.
struct Hanging;

fn hang<T>() -> Result<T, NvmlError> {
    loop {
        thread::park();
    }
}

impl GpuInventory for Hanging {
    fn inventory(&self) -> Result<Inventory, NvmlError> {
        hang()
    }

    fn probe(&self, _gpu: &GpuUuid) -> Result<(), NvmlError> {
        hang()
    }

    fn compute_mode(&self, _gpu: &GpuUuid) -> Result<Option<ComputeMode>, NvmlError> {
        hang()
    }

    fn set_compute_mode(&self, _gpu: &GpuUuid, _mode: ComputeMode) -> Result<(), NvmlError> {
        hang()
    }

    fn mps_processes(&self, _gpu: &GpuUuid) -> Result<Vec<GpuProcess>, NvmlError> {
        hang()
    }

    fn compute_processes(&self, _gpu: &GpuUuid) -> Result<Vec<GpuProcess>, NvmlError> {
        hang()
    }

    fn wait_for_event(&self, _timeout: Duration) -> Result<Option<HealthEvent>, NvmlError> {
        hang()
    }
}

#[test]
fn a_driver_that_hangs_does_not_keep_the_supervisor_from_ending() {
    let root = std::env::temp_dir().join(format!("mpshare-hanging-{}", std::process::id()));
    let options = Options {
        root: MpsRoot::new(&root),
        busy_interval: Duration::from_secs(1),
        idle_interval: Duration::from_secs(10),
        recovery: Duration::ZERO,
    };
    let ports = Ports {
        inventory: Arc::new(Hanging),
        daemons: Arc::new(|_, _| unreachable!("no card is known")),
        shared_memory: SharedMemory::Host,
        host_proc: Proc::default(),
        cgroup_proc: Proc::default(),
    };
    let (events, received) = mpsc::channel();
    let (ended, has_ended) = mpsc::channel();
    events.send(Event::FilesChanged).unwrap();
    events.send(Event::Stop).unwrap();
    thread::spawn(move || {
        let result = run(options, ports, XidPolicy::default(), (events, &received));
        ended.send(result.is_ok()).unwrap();
    });
    assert_eq!(has_ended.recv_timeout(Duration::from_secs(10)), Ok(true));
    std::fs::remove_dir_all(root).unwrap();
}
