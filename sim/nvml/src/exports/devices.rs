//! Handles and what a card says of itself.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use super::nvml;
use crate::abi::{
    Handle, MEMORY_V2, MemoryV1, MemoryV2, Out, PciInfo, PciInfoV1, TextIn, TextOut, Utilization,
    text_array,
};
use crate::device::{self, Device};
use crate::pci::PciAddress;
use crate::status::Status;
use crate::{product, session};

/// The only sensor, `NVML_TEMPERATURE_GPU`.
const GPU_SENSOR: c_uint = 0;

nvml! {
    fn nvmlDeviceGetCount_v2(count: Out<c_uint>) { gpu_count(count) }
    fn nvmlDeviceGetCount(count: Out<c_uint>) { gpu_count(count) }

    fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: Out<Handle>) { by_index(index, device) }
    fn nvmlDeviceGetHandleByIndex(index: c_uint, device: Out<Handle>) { by_index(index, device) }
    fn nvmlDeviceGetHandleByUUID(uuid: TextIn, device: Out<Handle>) {
        let uuid = uuid.read()?;
        device.set(device::find(|_, gpu| gpu.uuid == uuid)?)
    }
    fn nvmlDeviceGetHandleByPciBusId_v2(address: TextIn, device: Out<Handle>) {
        device.set(device::find_by_pci(&address.read()?)?)
    }
    fn nvmlDeviceGetHandleByPciBusId(address: TextIn, device: Out<Handle>) {
        device.set(device::find_by_pci(&address.read()?)?)
    }

    fn nvmlDeviceGetName(device: Handle, name: TextOut, length: c_uint) {
        name.write(length, &Device::of(device)?.gpu()?.name)
    }
    fn nvmlDeviceGetUUID(device: Handle, uuid: TextOut, length: c_uint) {
        uuid.write(length, &Device::of(device)?.gpu()?.uuid)
    }
    fn nvmlDeviceGetIndex(device: Handle, index: Out<c_uint>) {
        Device::of(device)?;
        let number = device::index_of(device).and_then(|index| c_uint::try_from(index).ok());
        index.set(number.ok_or(Status::INVALID_ARGUMENT)?)
    }
    fn nvmlDeviceGetMinorNumber(device: Handle, minor: Out<c_uint>) {
        minor.set(Device::of(device)?.gpu()?.minor)
    }
    fn nvmlDeviceGetPciInfo_v3(device: Handle, info: Out<PciInfo>) { pci_info(device, info) }
    fn nvmlDeviceGetPciInfo_v2(device: Handle, info: Out<PciInfo>) { pci_info(device, info) }
    fn nvmlDeviceGetPciInfo(device: Handle, info: Out<PciInfoV1>) {
        let device = Device::of(device)?;
        let gpu = device.gpu()?;
        let address = PciAddress::parse(&gpu.pci_bus_id).ok_or(Status::UNKNOWN)?;
        info.set(PciInfoV1 {
            bus_id: text_array(&address.legacy()),
            domain: address.domain,
            bus: address.bus,
            device: address.device,
            pci_device_id: product::pci_device_id(gpu),
        })
    }

    fn nvmlDeviceGetMemoryInfo(device: Handle, memory: Out<MemoryV1>) {
        let found = Device::of(device)?.memory()?;
        // The old form has no place for the reserved part and counts it as used.
        let used = found.reserved + found.used;
        memory.set(MemoryV1 { total: found.total, free: found.free, used })
    }
    fn nvmlDeviceGetMemoryInfo_v2(device: Handle, memory: Out<MemoryV2>) {
        let version = memory.get()?.version;
        if version != MEMORY_V2 {
            return Err(Status::ARGUMENT_VERSION_MISMATCH);
        }
        let device::Memory { total, reserved, used, free } = Device::of(device)?.memory()?;
        memory.set(MemoryV2 { version, total, reserved, free, used })
    }

    fn nvmlDeviceGetCudaComputeCapability(device: Handle, major: Out<c_int>, minor: Out<c_int>) {
        let (high, low) = Device::of(device)?.gpu()?.compute_capability;
        major.set(c_int::try_from(high).unwrap_or(0))?;
        minor.set(c_int::try_from(low).unwrap_or(0))
    }
    fn nvmlDeviceGetArchitecture(device: Handle, architecture: Out<c_uint>) {
        architecture.set(product::architecture(Device::of(device)?.gpu()?))
    }
    fn nvmlDeviceGetNumaNodeId(device: Handle, node: Out<c_uint>) {
        node.set(Device::of(device)?.gpu()?.numa_node.ok_or(Status::NOT_SUPPORTED)?)
    }

    fn nvmlDeviceGetComputeMode(device: Handle, mode: Out<c_uint>) {
        mode.set(device::compute_mode_number(Device::of(device)?.gpu()?.compute_mode))
    }
    fn nvmlDeviceSetComputeMode(device: Handle, mode: c_uint) {
        device::set_compute_mode(device, mode)
    }
    fn nvmlDeviceGetPersistenceMode(device: Handle, mode: Out<c_uint>) {
        mode.set(c_uint::from(Device::of(device)?.gpu()?.persistence_mode))
    }
    fn nvmlDeviceSetPersistenceMode(device: Handle, mode: c_uint) {
        device::set_persistence_mode(device, mode)
    }

    fn nvmlDeviceGetUtilizationRates(device: Handle, utilization: Out<Utilization>) {
        Device::of(device)?;
        utilization.set(Utilization { gpu: 0, memory: 0 })
    }
    fn nvmlDeviceGetTemperature(device: Handle, sensor: c_uint, temperature: Out<c_uint>) {
        Device::of(device)?;
        if sensor != GPU_SENSOR {
            return Err(Status::INVALID_ARGUMENT);
        }
        temperature.set(product::TEMPERATURE)
    }
    fn nvmlDeviceGetPowerUsage(device: Handle, milliwatts: Out<c_uint>) {
        milliwatts.set(product::power_usage_mw(Device::of(device)?.gpu()?))
    }
    fn nvmlDeviceGetEnforcedPowerLimit(device: Handle, milliwatts: Out<c_uint>) {
        milliwatts.set(product::power_limit_mw(Device::of(device)?.gpu()?))
    }
    fn nvmlDeviceGetPowerManagementLimit(device: Handle, milliwatts: Out<c_uint>) {
        milliwatts.set(product::power_limit_mw(Device::of(device)?.gpu()?))
    }
    fn nvmlDeviceGetPerformanceState(device: Handle, state: Out<c_uint>) {
        Device::of(device)?;
        state.set(0)
    }
    fn nvmlDeviceGetDisplayActive(device: Handle, active: Out<c_uint>) {
        Device::of(device)?;
        active.set(0)
    }
    fn nvmlDeviceGetTotalEccErrors(
        device: Handle,
        _kind: c_uint,
        _counter: c_uint,
        errors: Out<c_ulonglong>
    ) {
        Device::of(device)?;
        errors.set(0)
    }
    fn nvmlDeviceGetFanSpeed(device: Handle, _speed: Out<c_uint>) { unsupported(device) }
    fn nvmlDeviceGetFanSpeed_v2(device: Handle, _fan: c_uint, _speed: Out<c_uint>) {
        unsupported(device)
    }

    fn nvmlDeviceGetMigMode(device: Handle, current: Out<c_uint>, pending: Out<c_uint>) {
        let mode = Device::of(device)?.gpu()?.mig_enabled.ok_or(Status::NOT_SUPPORTED)?;
        current.set(c_uint::from(mode))?;
        pending.set(c_uint::from(mode))
    }
    fn nvmlDeviceGetMaxMigDeviceCount(device: Handle, count: Out<c_uint>) {
        let enabled = Device::of(device)?.gpu()?.mig_enabled == Some(true);
        count.set(if enabled { 7 } else { 0 })
    }
    fn nvmlDeviceGetMigDeviceHandleByIndex(device: Handle, _index: c_uint, _mig: Out<Handle>) {
        let enabled = Device::of(device)?.gpu()?.mig_enabled == Some(true);
        // The simulated cards have no instances.
        Err(if enabled { Status::NOT_FOUND } else { Status::NOT_SUPPORTED })
    }
    fn nvmlDeviceIsMigDeviceHandle(device: Handle, is_mig: Out<c_uint>) {
        Device::of(device)?;
        is_mig.set(0)
    }
    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig: Handle, _device: Out<Handle>) {
        unsupported(mig)
    }
    fn nvmlDeviceGetGpuInstanceId(device: Handle, _id: Out<c_uint>) { unsupported(device) }
    fn nvmlDeviceGetComputeInstanceId(device: Handle, _id: Out<c_uint>) { unsupported(device) }
    fn nvmlDeviceGetAttributes_v2(device: Handle, _attributes: Out<c_uint>) {
        // As in the real one, for MIG devices only.
        unsupported(device)
    }

    fn nvmlDeviceGetTopologyCommonAncestor(one: Handle, other: Handle, _level: Out<c_uint>) {
        Device::of(other)?;
        unsupported(one)
    }
    fn nvmlDeviceGetNvLinkState(device: Handle, _link: c_uint, _active: Out<c_uint>) {
        unsupported(device)
    }
    fn nvmlDeviceGetNvLinkRemotePciInfo_v2(device: Handle, _link: c_uint, _info: Out<PciInfo>) {
        unsupported(device)
    }
    fn nvmlDeviceGetGpuFabricInfo(device: Handle, _info: *mut c_void) { unsupported(device) }
    fn nvmlDeviceGetGpuFabricInfoV(device: Handle, _info: *mut c_void) { unsupported(device) }
}

fn gpu_count(count: Out<c_uint>) -> Result<(), Status> {
    count.set(c_uint::try_from(session::state()?.gpus.len()).unwrap_or(0))
}

fn by_index(index: c_uint, device: Out<Handle>) -> Result<(), Status> {
    let wanted = usize::try_from(index).unwrap_or(usize::MAX);
    if wanted >= session::state()?.gpus.len() {
        return Err(Status::INVALID_ARGUMENT);
    }
    device.set(device::find(|index, _| index == wanted)?)
}

fn pci_info(device: Handle, info: Out<PciInfo>) -> Result<(), Status> {
    let device = Device::of(device)?;
    let gpu = device.gpu()?;
    let address = PciAddress::parse(&gpu.pci_bus_id).ok_or(Status::UNKNOWN)?;
    info.set(PciInfo {
        bus_id_legacy: text_array(&address.legacy()),
        domain: address.domain,
        bus: address.bus,
        device: address.device,
        pci_device_id: product::pci_device_id(gpu),
        pci_subsystem_id: 0,
        bus_id: text_array(&address.long()),
    })
}

fn unsupported(device: Handle) -> Result<(), Status> {
    Device::of(device)?;
    Err(Status::NOT_SUPPORTED)
}
