//! Initialisation and devices.

use std::ffi::{c_int, c_uint};

use mpshare_sim_state::Store;

use super::cuda;
use crate::abi::{Out, TextOut};
use crate::status::Status;
use crate::{attribute, init, memory, runtime};

cuda! {
    fn cuInit(flags: c_uint) {
        if flags == 0 { init::init() } else { Err(Status::INVALID_VALUE) }
    }
    fn cuDriverGetVersion(version: Out<c_int>) {
        let cuda = Store::from_env().read().unwrap_or_default().driver.cuda;
        let (major, minor) = cuda.split_once('.').unwrap_or((&cuda, "0"));
        let number = |text: &str| text.parse::<c_int>().unwrap_or(0);
        version.set(number(major) * 1000 + number(minor) * 10)
    }
    fn cuDeviceGetCount(count: Out<c_int>) {
        let devices = runtime::with(|runtime| Ok(runtime.devices.len()))?;
        count.set(c_int::try_from(devices).map_err(|_| Status::UNKNOWN)?)
    }
    fn cuDeviceGet(device: Out<c_int>, ordinal: c_int) {
        runtime::with(|runtime| runtime.device(ordinal).map(|_| ()))?;
        device.set(ordinal)
    }
    fn cuDeviceGetName(name: TextOut, length: c_int, device: c_int) {
        name.write(length, &runtime::with(|runtime| runtime.gpu(device))?.name)
    }
    fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: c_int) {
        let gpu = runtime::with(|runtime| runtime.gpu(device))?;
        bytes.set(memory::to_bytes(gpu.total_mib)?)
    }
    fn cuDeviceGetUuid(uuid: Out<[u8; 16]>, device: c_int) { device_uuid(uuid, device) }
    fn cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, device: c_int) { device_uuid(uuid, device) }
    fn cuDeviceGetAttribute(value: Out<c_int>, attribute: c_int, device: c_int) {
        value.set(runtime::with(|runtime| attribute::get(runtime, device, attribute))?)
    }
}

fn device_uuid(uuid: Out<[u8; 16]>, device: c_int) -> Result<(), Status> {
    uuid.set(runtime::with(|runtime| runtime.device(device).map(attribute::uuid_bytes))?)
}
