//! Initialisation, versions and texts.

use std::ffi::{c_char, c_int, c_uint};

use super::nvml;
use crate::abi::{Out, TextOut};
use crate::status::Status;
use crate::{processes, session};

nvml! {
    fn nvmlInit_v2() { session::open() }
    fn nvmlInit() { session::open() }
    fn nvmlInitWithFlags(_flags: c_uint) { session::open() }
    fn nvmlShutdown() { session::close() }

    fn nvmlSystemGetDriverVersion(version: TextOut, length: c_uint) {
        session::store()?;
        version.write(length, &session::driver_version())
    }
    fn nvmlSystemGetNVMLVersion(version: TextOut, length: c_uint) {
        version.write(length, &session::library_version())
    }
    fn nvmlSystemGetCudaDriverVersion(version: Out<c_int>) {
        version.set(session::cuda_version(&session::state()?))
    }
    fn nvmlSystemGetCudaDriverVersion_v2(version: Out<c_int>) {
        version.set(session::cuda_version(&session::state()?))
    }
    fn nvmlSystemGetProcessName(pid: c_uint, name: TextOut, length: c_uint) {
        name.write(length, &processes::name(pid)?)
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(status: Status) -> *const c_char {
    status.text().as_ptr()
}
