//! Modules and launches.

use std::ffi::{c_uint, c_void};

use super::cuda;
use crate::abi::{Handle, Out, TextIn};
use crate::{launch, runtime};

cuda! {
    fn cuModuleLoadData(module: Out<Handle>, _image: *const c_void) {
        module.set(Handle::from_number(runtime::with_healthy(launch::load_module)?))
    }
    fn cuModuleUnload(module: Handle) {
        runtime::with_healthy(|runtime| launch::unload_module(runtime, module.number()))
    }
    fn cuModuleGetFunction(function: Out<Handle>, module: Handle, name: TextIn) {
        let name = name.read()?;
        let found = runtime::with_healthy(|runtime| {
            launch::function(runtime, module.number(), &name)
        })?;
        function.set(Handle::from_number(found))
    }
    fn cuLaunchKernel(
        function: Handle,
        _grid_x: c_uint,
        _grid_y: c_uint,
        _grid_z: c_uint,
        _block_x: c_uint,
        _block_y: c_uint,
        _block_z: c_uint,
        _shared_bytes: c_uint,
        _stream: Handle,
        _parameters: *const *const c_void,
        _extra: *const *const c_void
    ) {
        runtime::with_healthy(|runtime| launch::launch(runtime, function.number()))
    }
}
