//! Event sets.

use std::ffi::{c_uint, c_ulonglong};
use std::time::Duration;

use super::nvml;
use crate::abi::{EventData, EventDataV1, Handle, Out};
use crate::device::Device;
use crate::events;

nvml! {
    fn nvmlEventSetCreate(set: Out<Handle>) { set.set(events::create()?) }
    fn nvmlEventSetFree(set: Handle) { events::free(set) }
    fn nvmlDeviceGetSupportedEventTypes(device: Handle, types: Out<c_ulonglong>) {
        Device::of(device)?;
        types.set(events::SUPPORTED)
    }
    fn nvmlDeviceRegisterEvents(device: Handle, types: c_ulonglong, set: Handle) {
        events::register(device, types, set)
    }
    fn nvmlEventSetWait_v2(set: Handle, data: Out<EventData>, timeout_ms: c_uint) {
        let event = events::wait(set, Duration::from_millis(timeout_ms.into()))?;
        data.set(EventData {
            device: event.device,
            kind: events::XID,
            data: event.xid.into(),
            // A card without MIG has no instances (facts/nvml.md; the public mock says 0).
            gpu_instance_id: u32::MAX,
            compute_instance_id: u32::MAX,
        })
    }
    fn nvmlEventSetWait(set: Handle, data: Out<EventDataV1>, timeout_ms: c_uint) {
        let event = events::wait(set, Duration::from_millis(timeout_ms.into()))?;
        data.set(EventDataV1 {
            device: event.device,
            kind: events::XID,
            data: event.xid.into(),
        })
    }
}
