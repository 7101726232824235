//! The edge to `libcuda.so.1`: the functions that the sample calls, as safe methods.

#![expect(unsafe_code, reason = "a C library that is known by name only")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;

use libloading::{Library, Symbol};
use thiserror::Error;

/// Attributes of a device.
#[derive(Debug, Clone, Copy)]
pub(super) enum Attribute {
    MultiprocessorCount,
    MpsEnabled,
}

impl Attribute {
    fn number(self) -> c_int {
        match self {
            Self::MultiprocessorCount => 16,
            Self::MpsEnabled => 133,
        }
    }
}

/// The address that the simulated card can't reach, whatever is allocated.
const UNREACHABLE: u64 = 0xdead_0000;

/// CUDA's number for exhausted memory.
const OUT_OF_MEMORY: c_int = 2;

/// Why a call did not do what it should.
#[derive(Debug, Error)]
pub(super) enum Error {
    /// No library.
    #[error("`libcuda.so.1` can't be loaded")]
    Library(#[source] libloading::Error),
    /// The library lacks a function.
    #[error("`libcuda.so.1` has no `{name}`")]
    Symbol {
        /// The function.
        name: &'static str,
        /// What the dynamic linker says.
        source: libloading::Error,
    },
    /// The driver refuses.
    #[error("{call}: {name}")]
    Cuda {
        /// The function.
        call: &'static str,
        /// Its result.
        code: c_int,
        /// The result's name.
        name: String,
    },
}

impl Error {
    /// The call, the number and the name, for a report.
    pub(super) fn parts(&self) -> (String, i32, String) {
        match self {
            Self::Cuda { call, code, name } => ((*call).to_owned(), *code, name.clone()),
            Self::Library(_) | Self::Symbol { .. } => ("dlopen".to_owned(), 0, self.to_string()),
        }
    }

    /// Whether memory is used up.
    pub(super) fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Cuda { code: OUT_OF_MEMORY, .. })
    }
}

/// The loaded driver.
#[derive(Debug)]
pub(super) struct Driver {
    library: Library,
}

/// Calls a driver function by name and turns its result into a `Result`.
macro_rules! call {
    ($driver:ident.$name:ident($($value:expr => $type:ty),* $(,)?)) => {{
        type Function = unsafe extern "C" fn($($type),*) -> c_int;
        let function: Symbol<'_, Function> = $driver.symbol(stringify!($name))?;
        // SAFETY: the signature is the documented one of this driver function, and every pointer
        // among the arguments is to a live value of the caller's frame or documented as optional.
        let code = unsafe { function($($value),*) };
        $driver.check(stringify!($name), code)
    }};
}

impl Driver {
    /// Loads the library from the dynamic linker's search path.
    pub(super) fn load() -> Result<Self, Error> {
        // SAFETY: loading a CUDA driver has no precondition; its constructors are its own.
        let library = unsafe { Library::new("libcuda.so.1") };
        Ok(Self { library: library.map_err(Error::Library)? })
    }

    /// `cuInit`, which may wait for MPS as long as it likes.
    pub(super) fn init(&self) -> Result<(), Error> {
        call!(self.cuInit(0 => c_uint))
    }

    /// The name of a visible card.
    pub(super) fn name(&self, device: i32) -> Result<String, Error> {
        let mut text = [0_u8; 96];
        let text_pointer = text.as_mut_ptr().cast::<c_char>();
        call!(self.cuDeviceGetName(text_pointer => *mut c_char, 95 => c_int, device => c_int))?;
        let name = CStr::from_bytes_until_nul(&text).unwrap_or_default();
        Ok(name.to_string_lossy().into_owned())
    }

    /// The UUID of a visible card in NVML's form.
    pub(super) fn uuid(&self, device: i32) -> Result<String, Error> {
        let mut bytes = [0_u8; 16];
        call!(self.cuDeviceGetUuid(&raw mut bytes => *mut [u8; 16], device => c_int))?;
        let hex = format!("{:032x}", u128::from_be_bytes(bytes));
        let part = |range| hex.get(range).unwrap_or_default();
        let (first, second, third) = (part(0..8), part(8..12), part(12..16));
        Ok(format!("GPU-{first}-{second}-{third}-{}-{}", part(16..20), part(20..32)))
    }

    /// An attribute of a visible card.
    pub(super) fn attribute(&self, attribute: Attribute, device: i32) -> Result<i32, Error> {
        let mut value = 0;
        let number = attribute.number();
        call!(self.cuDeviceGetAttribute(
            &raw mut value => *mut c_int,
            number => c_int,
            device => c_int,
        ))?;
        Ok(value)
    }

    /// Makes a context on a visible card, current in this thread.
    pub(super) fn create_context(&self, device: i32) -> Result<(), Error> {
        let mut context: *mut c_void = ptr::null_mut();
        call!(self.cuCtxCreate_v2(
            &raw mut context => *mut *mut c_void,
            0 => c_uint,
            device => c_int,
        ))
    }

    /// Free and total bytes.
    pub(super) fn memory_info(&self) -> Result<(usize, usize), Error> {
        let (mut free, mut total) = (0, 0);
        call!(self.cuMemGetInfo_v2(&raw mut free => *mut usize, &raw mut total => *mut usize))?;
        Ok((free, total))
    }

    /// Allocates, and keeps it to the end of the process.
    pub(super) fn allocate(&self, bytes: usize) -> Result<(), Error> {
        let mut address = 0;
        call!(self.cuMemAlloc_v2(&raw mut address => *mut u64, bytes => usize))
    }

    /// Waits for the context's work, and learns whether the context still works.
    pub(super) fn synchronize(&self) -> Result<(), Error> {
        call!(self.cuCtxSynchronize())
    }

    /// Launches a kernel that keeps a whole card busy for so long.
    pub(super) fn launch(&self, milliseconds: u64) -> Result<(), Error> {
        let image = c"";
        let (mut module, mut function) = (ptr::null_mut::<c_void>(), ptr::null_mut::<c_void>());
        call!(self.cuModuleLoadData(
            &raw mut module => *mut *mut c_void,
            image.as_ptr() => *const c_char,
        ))?;
        let name = format!("spin_ms_{milliseconds}\0");
        call!(self.cuModuleGetFunction(
            &raw mut function => *mut *mut c_void,
            module => *mut c_void,
            name.as_ptr().cast() => *const c_char,
        ))?;
        call!(self.cuLaunchKernel(
            function => *mut c_void,
            1 => c_uint, 1 => c_uint, 1 => c_uint,
            32 => c_uint, 1 => c_uint, 1 => c_uint,
            0 => c_uint,
            ptr::null_mut() => *mut c_void,
            ptr::null() => *const *const c_void,
            ptr::null() => *const *const c_void,
        ))
    }

    /// Makes the card access memory that it can't reach.
    pub(super) fn fault(&self) -> Result<(), Error> {
        call!(self.cuMemsetD8_v2(UNREACHABLE => u64, 0 => u8, 1 => usize))
    }

    fn symbol<T>(&self, name: &'static str) -> Result<Symbol<'_, T>, Error> {
        // SAFETY: each caller names the documented type of the function; it's only called as such.
        let symbol = unsafe { self.library.get(name.as_bytes()) };
        symbol.map_err(|source| Error::Symbol { name, source })
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<(), Error> {
        if code == 0 {
            return Ok(());
        }
        let name = self.error_name(code).unwrap_or_else(|| format!("CUDA error {code}"));
        Err(Error::Cuda { call, code, name })
    }

    fn error_name(&self, code: c_int) -> Option<String> {
        type Function = unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int;
        let mut name: *const c_char = ptr::null();
        let function: Symbol<'_, Function> = self.symbol("cuGetErrorName").ok()?;
        // SAFETY: the documented signature, and a pointer to a live local.
        let found = unsafe { function(code, &raw mut name) };
        if found != 0 || name.is_null() {
            return None;
        }
        // SAFETY: the driver answers with a static NUL-terminated text.
        let text = unsafe { CStr::from_ptr(name) };
        Some(text.to_string_lossy().into_owned())
    }
}
