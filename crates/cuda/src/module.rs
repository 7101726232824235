//! Programs for the card: text in NVIDIA's PTX that the driver itself compiles, so that no compiler
//! is needed here.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;

use libloading::Symbol;

use crate::{Context, CudaError, refused};

/// A loaded program.
#[derive(Debug)]
pub struct Module<'a> {
    context: &'a Context<'a>,
    raw: *mut c_void,
}

/// A function of a program, without parameters.
#[derive(Debug)]
pub struct Function<'a> {
    module: &'a Module<'a>,
    raw: *mut c_void,
}

impl Context<'_> {
    /// Compiles and loads a program for the context's card.
    pub fn load(&self, ptx: &CStr) -> Result<Module<'_>, CudaError> {
        let mut raw: *mut c_void = ptr::null_mut();
        call!(
            self.driver,
            cuModuleLoadData(
                &raw mut raw => *mut *mut c_void, ptx.as_ptr().cast() => *const c_void,
            )
        )?;
        Ok(Module { context: self, raw })
    }
}

impl Module<'_> {
    /// A function by its name.
    pub fn function(&self, name: &CStr) -> Result<Function<'_>, CudaError> {
        let mut raw: *mut c_void = ptr::null_mut();
        call!(
            self.context.driver,
            cuModuleGetFunction(
                &raw mut raw => *mut *mut c_void,
                self.raw => *mut c_void,
                name.as_ptr() => *const c_char,
            )
        )?;
        Ok(Function { module: self, raw })
    }

    fn unload(&self) -> Result<(), CudaError> {
        call!(self.context.driver, cuModuleUnload(self.raw => *mut c_void))
    }
}

impl Drop for Module<'_> {
    fn drop(&mut self) {
        // Of a context that was lost nothing is left to be given back.
        drop(self.unload());
    }
}

impl Function<'_> {
    /// Queues one thread of it. What goes wrong in it shows at [`Context::synchronize`].
    pub fn launch(&self) -> Result<(), CudaError> {
        let no_stream: *mut c_void = ptr::null_mut();
        let nothing: *mut *mut c_void = ptr::null_mut();
        call!(
            self.module.context.driver,
            cuLaunchKernel(
                self.raw => *mut c_void,
                1 => c_uint, 1 => c_uint, 1 => c_uint,
                1 => c_uint, 1 => c_uint, 1 => c_uint,
                0 => c_uint,
                no_stream => *mut c_void,
                nothing => *mut *mut c_void,
                nothing => *mut *mut c_void,
            )
        )
    }
}
