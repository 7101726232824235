//! Contexts.

use std::ffi::{c_int, c_uint};

use super::cuda;
use crate::abi::{Handle, Out};
use crate::status::Status;
use crate::{context, current, launch, runtime};

cuda! {
    fn cuCtxCreate_v2(context: Out<Handle>, _flags: c_uint, device: c_int) {
        let made = runtime::with_healthy(|runtime| context::create(runtime, device))?;
        context.set(Handle::from_number(made))
    }
    fn cuCtxDestroy_v2(context: Handle) {
        runtime::with(|runtime| context::destroy(runtime, context.number()))
    }
    fn cuCtxSetCurrent(context: Handle) {
        if context.number() != 0 {
            runtime::with(|runtime| runtime.contexts.device(context.number()).map(|_| ()))?;
        }
        current::set(context.number())
    }
    fn cuCtxGetCurrent(context: Out<Handle>) {
        runtime::with(|_| Ok(()))?;
        context.set(Handle::from_number(current::get()))
    }
    fn cuCtxPushCurrent_v2(context: Handle) {
        runtime::with(|runtime| runtime.contexts.device(context.number()).map(|_| ()))?;
        current::push(context.number())
    }
    fn cuCtxPopCurrent_v2(context: Out<Handle>) {
        runtime::with(|_| Ok(()))?;
        context.set(Handle::from_number(current::pop()?))
    }
    fn cuCtxGetDevice(device: Out<c_int>) {
        device.set(runtime::with(|runtime| context::current_device(runtime))?)
    }
    fn cuCtxSynchronize() { launch::synchronize() }
    fn cuDevicePrimaryCtxRetain(context: Out<Handle>, device: c_int) {
        let primary = runtime::with_healthy(|runtime| context::retain_primary(runtime, device))?;
        context.set(Handle::from_number(primary))
    }
    fn cuDevicePrimaryCtxRelease_v2(device: c_int) { release_primary(device) }
    fn cuDevicePrimaryCtxRelease(device: c_int) { release_primary(device) }
}

fn release_primary(device: c_int) -> Result<(), Status> {
    runtime::with(|runtime| context::release_primary(runtime, device))
}
