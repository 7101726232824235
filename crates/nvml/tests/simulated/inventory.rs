//! Cards, compute modes and processes.

use std::fs;
use std::path::Path;

use mpshare_core::{ComputeCapability, Memory, MigMode};
use mpshare_nvml::{ComputeMode, GpuInventory as _, GpuProcess, NvmlError, NvmlInventory};
use mpshare_sim_state::{ComputeMode as SimMode, Health, ProcessKind};

use super::node::{A100, T4, on_node, uuid};

#[test]
fn the_cards_are_listed_with_their_facts_in_index_order() {
    on_node(|node| {
        let inventory = node.open().inventory().unwrap();
        assert_eq!(inventory.driver.as_str(), "555.58.02");
        let [t4, a100] = inventory.gpus.as_slice() else {
            panic!("{inventory:?}");
        };
        assert_eq!((t4.uuid.as_str(), t4.index, t4.minor), (T4, 0, 0));
        assert_eq!(t4.model, "Tesla T4");
        assert_eq!(t4.memory, Memory::from_mib(15360));
        assert_eq!(t4.compute_capability, ComputeCapability { major: 7, minor: 5 });
        assert_eq!(t4.mig, MigMode::Unsupported);
        assert_eq!((a100.uuid.as_str(), a100.index), (A100, 1));
        assert_eq!(a100.mig, MigMode::Disabled);
    });
}

#[test]
fn mig_and_the_numa_node_are_read() {
    on_node(|node| {
        node.change_gpu(A100, |gpu| gpu.mig_enabled = Some(true));
        let device = node.store.dir().with_file_name("sys/bus/pci/devices/0000:00:08.0");
        fs::create_dir_all(&device).unwrap();
        fs::write(device.join("numa_node"), "1\n").unwrap();
        let inventory = node.open().inventory().unwrap();
        let a100 = inventory.gpu(&uuid(A100)).unwrap();
        assert_eq!((a100.mig, a100.numa_node), (MigMode::Enabled, Some(1)));
        assert_eq!(inventory.gpu(&uuid(T4)).unwrap().numa_node, None);
    });
}

#[test]
fn the_compute_mode_is_set_and_read_back() {
    on_node(|node| {
        let nvml = node.open();
        let gpu = uuid(T4);
        assert_eq!(nvml.compute_mode(&gpu).unwrap(), Some(ComputeMode::Default));
        for mode in [ComputeMode::ExclusiveProcess, ComputeMode::Prohibited, ComputeMode::Default] {
            nvml.set_compute_mode(&gpu, mode).unwrap();
            assert_eq!(nvml.compute_mode(&gpu).unwrap(), Some(mode));
        }
        nvml.set_compute_mode(&gpu, ComputeMode::ExclusiveProcess).unwrap();
        let state = node.store.read().unwrap();
        let modes: Vec<SimMode> = state.gpus.iter().map(|gpu| gpu.compute_mode).collect();
        assert_eq!(modes, [SimMode::ExclusiveProcess, SimMode::Default]);
    });
}

#[test]
fn a_denied_compute_mode_says_that_it_takes_root() {
    on_node(|node| {
        node.change(|state| state.faults.compute_mode_denied = true);
        let denied = node.open().set_compute_mode(&uuid(T4), ComputeMode::ExclusiveProcess);
        let error = denied.unwrap_err();
        assert!(matches!(error, NvmlError::NoPermission { .. }), "{error}");
        assert!(error.to_string().contains(T4) && error.to_string().contains("EXCLUSIVE_PROCESS"));
    });
}

#[test]
fn clients_and_servers_of_mps_are_told_apart() {
    on_node(|node| {
        let nvml = node.open();
        let me = i32::try_from(std::process::id()).unwrap();
        node.occupy(ProcessKind::MpsClient { server: 9 }, 700);
        let client = GpuProcess { pid: me, memory: Some(Memory::from_mib(700)) };
        assert_eq!(nvml.mps_processes(&uuid(T4)).unwrap(), [client]);
        assert_eq!(nvml.mps_processes(&uuid(A100)).unwrap(), []);
        node.change(|state| state.processes.clear());
        node.occupy(ProcessKind::MpsServer, 30);
        assert_eq!(nvml.mps_processes(&uuid(T4)).unwrap(), []);
        let listed = nvml.compute_processes(&uuid(T4)).unwrap();
        assert_eq!(listed.len(), 1);
    });
}

#[test]
fn a_lost_card_is_left_out_and_says_so_when_asked() {
    on_node(|node| {
        let nvml = node.open();
        nvml.probe(&uuid(T4)).unwrap();
        node.change_gpu(T4, |gpu| gpu.health = Health::Lost);
        let lost = nvml.probe(&uuid(T4)).unwrap_err();
        assert!(lost.is_lost() && lost.to_string().contains(T4), "{lost}");
        assert!(nvml.mps_processes(&uuid(T4)).unwrap_err().is_lost());
        nvml.probe(&uuid(A100)).unwrap();
        let inventory = nvml.inventory().unwrap();
        assert_eq!(inventory.gpus.len(), 1);
        assert_eq!(inventory.gpus.first().unwrap().index, 1);
    });
}

#[test]
fn an_unknown_card_is_named() {
    on_node(|node| {
        let unknown = node.open().probe(&uuid("GPU-00000001")).unwrap_err();
        assert!(matches!(&unknown, NvmlError::NoSuchGpu(gpu) if *gpu == uuid("GPU-00000001")));
        assert!(unknown.is_lost());
    });
}

#[test]
fn a_driver_that_is_not_loaded_can_be_tried_again() {
    on_node(|node| {
        node.change(|state| state.faults.driver_not_loaded = true);
        let error = node.try_open().unwrap_err();
        assert!(matches!(error, NvmlError::DriverNotLoaded), "{error}");
        assert!(error.is_driver_away());
        node.change(|state| state.faults.driver_not_loaded = false);
        assert_eq!(node.open().inventory().unwrap().gpus.len(), 2);
    });
}

#[test]
fn a_library_that_is_not_there_is_named() {
    let error = NvmlInventory::open(Some(Path::new("/nowhere/libnvidia-ml.so.1"))).unwrap_err();
    assert!(error.is_driver_away());
    assert!(error.to_string().contains("/nowhere/libnvidia-ml.so.1"), "{error}");
}
