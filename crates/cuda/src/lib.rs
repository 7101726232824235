//! The few calls of CUDA's driver API by which a process becomes a client of a card.
//!
//! The library is found at run time, so nothing of CUDA is needed to build this, and a node whose
//! driver has none gets an error. It is no binding of the whole API: what a watchdog and a test of
//! limits need. Names, numbers and signatures are those of `cuda.h`.

#![expect(unsafe_code, reason = "a C library that is known by name only")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::path::PathBuf;
use std::ptr;

use libloading::{Library, Symbol};
use thiserror::Error;

macro_rules! call {
    ($driver:expr, $name:ident($($value:expr => $type:ty),* $(,)?)) => {{
        type Function = unsafe extern "C" fn($($type),*) -> c_int;
        let function: Symbol<'_, Function> = $driver.symbol(stringify!($name))?;
        // SAFETY: the signature is that of `cuda.h`, and each pointer is to a live value of the
        // caller's frame.
        let code = unsafe { function($($value),*) };
        refused(stringify!($name), code)
    }};
}

mod module;

pub use module::{Function, Module};

/// The library's name for the dynamic linker.
pub const LIBRARY: &str = "libcuda.so.1";

/// A result of the driver other than success: a `CUresult`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code(pub i32);

impl Code {
    /// Memory is used up, or a limit reached.
    pub const OUT_OF_MEMORY: Self = Self(2);
    /// No card that this process may use.
    pub const NO_DEVICE: Self = Self(100);
    /// The MPS server takes nobody now: it starts, has a fault, or cleans up (facts/mps.md 4.1).
    pub const SERVER_NOT_READY: Self = Self(807);
    /// The server has as many clients as it takes.
    pub const MAX_CLIENTS: Self = Self(808);
    /// The server has as many connections as it takes.
    pub const MAX_CONNECTIONS: Self = Self(809);

    /// Its name in `cuda.h`, of those that MPS and limits bring about.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            1 => "CUDA_ERROR_INVALID_VALUE",
            2 => "CUDA_ERROR_OUT_OF_MEMORY",
            3 => "CUDA_ERROR_NOT_INITIALIZED",
            46 => "CUDA_ERROR_DEVICE_UNAVAILABLE",
            100 => "CUDA_ERROR_NO_DEVICE",
            101 => "CUDA_ERROR_INVALID_DEVICE",
            304 => "CUDA_ERROR_OPERATING_SYSTEM",
            201 => "CUDA_ERROR_INVALID_CONTEXT",
            700 => "CUDA_ERROR_ILLEGAL_ADDRESS",
            719 => "CUDA_ERROR_LAUNCH_FAILED",
            800 => "CUDA_ERROR_NOT_PERMITTED",
            805 => "CUDA_ERROR_MPS_CONNECTION_FAILED",
            806 => "CUDA_ERROR_MPS_RPC_FAILURE",
            807 => "CUDA_ERROR_MPS_SERVER_NOT_READY",
            808 => "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED",
            809 => "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED",
            810 => "CUDA_ERROR_MPS_CLIENT_TERMINATED",
            999 => "CUDA_ERROR_UNKNOWN",
            _ => return None,
        })
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "CUDA error {}", self.0),
        }
    }
}

/// Why a call did nothing.
#[derive(Debug, Error)]
pub enum CudaError {
    /// The library isn't there, or can't be loaded.
    #[error("`{}` can't be loaded", .path.display())]
    Library {
        /// Where it was looked for.
        path: PathBuf,
        /// What the dynamic linker says.
        source: libloading::Error,
    },
    /// The library lacks a function.
    #[error("`{LIBRARY}` has no `{name}`")]
    Symbol {
        /// The function.
        name: &'static str,
        /// What the dynamic linker says.
        source: libloading::Error,
    },
    /// The driver refuses.
    #[error("{call}: {code}")]
    Refused {
        /// The function.
        call: &'static str,
        /// Its result.
        code: Code,
    },
}

impl CudaError {
    /// The driver's result, if it got as far as that.
    pub const fn code(&self) -> Option<Code> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::Library { .. } | Self::Symbol { .. } => None,
        }
    }
}

/// The loaded library.
#[derive(Debug)]
pub struct Driver {
    library: Library,
}

/// A card by its place among those that this process sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device(c_int);

/// Memory of the card that a context is on, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryInfo {
    /// What can still be allocated; under a pinned limit what that leaves (facts/mps.md 2).
    pub free: usize,
    /// All of the card.
    pub total: usize,
}

impl Driver {
    /// Loads the library: the first of these files that is there, else by its name.
    pub fn open(candidates: &[PathBuf]) -> Result<Self, CudaError> {
        let there = candidates.iter().find(|path| path.exists());
        let path = there.cloned().unwrap_or_else(|| PathBuf::from(LIBRARY));
        // SAFETY: loading the driver has no precondition.
        let library = unsafe { Library::new(&path) };
        let library = library.map_err(|source| CudaError::Library { path, source })?;
        Ok(Self { library })
    }

    /// `cuInit`. Under MPS this is where a process connects, and where it waits when the server
    /// doesn't take it: without a limit (facts/mps.md 4.2).
    pub fn init(&self) -> Result<(), CudaError> {
        call!(self, cuInit(0 => c_uint))
    }

    /// How many cards this process sees.
    pub fn device_count(&self) -> Result<u32, CudaError> {
        let mut count: c_int = 0;
        call!(self, cuDeviceGetCount(&raw mut count => *mut c_int))?;
        Ok(u32::try_from(count).unwrap_or(0))
    }

    /// The card at a place, counted from 0.
    pub fn device(&self, ordinal: u16) -> Result<Device, CudaError> {
        let mut device: c_int = 0;
        call!(self, cuDeviceGet(&raw mut device => *mut c_int, c_int::from(ordinal) => c_int))?;
        Ok(Device(device))
    }

    /// The version of CUDA that the driver speaks, as thousands and tens: 12050 is 12.5. It needs no
    /// initialisation.
    pub fn version(&self) -> Result<u32, CudaError> {
        let mut version: c_int = 0;
        call!(self, cuDriverGetVersion(&raw mut version => *mut c_int))?;
        Ok(u32::try_from(version).unwrap_or(0))
    }

    /// The product name of a card.
    pub fn name(&self, device: Device) -> Result<String, CudaError> {
        const LENGTH: c_int = 128;
        let mut name = [0_u8; 128];
        call!(
            self,
            cuDeviceGetName(
                name.as_mut_ptr().cast() => *mut c_char, LENGTH => c_int, device.0 => c_int,
            )
        )?;
        let text = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        Ok(text.to_string_lossy().into_owned())
    }

    /// The UUID of a card in NVML's form.
    pub fn uuid(&self, device: Device) -> Result<String, CudaError> {
        let mut bytes = [0_u8; 16];
        call!(self, cuDeviceGetUuid(bytes.as_mut_ptr() => *mut u8, device.0 => c_int))?;
        Ok(uuid_text(bytes))
    }

    /// Whether this process reaches a card through MPS; drivers before CUDA 12.4 don't know.
    pub fn is_mps_client(&self, device: Device) -> Result<bool, CudaError> {
        const MPS_ENABLED: c_int = 133;
        Ok(self.attribute(device, MPS_ENABLED)? != 0)
    }

    /// How many multiprocessors this process may use of a card: fewer than all under a thread
    /// percentage.
    pub fn multiprocessors(&self, device: Device) -> Result<u32, CudaError> {
        const MULTIPROCESSOR_COUNT: c_int = 16;
        Ok(u32::try_from(self.attribute(device, MULTIPROCESSOR_COUNT)?).unwrap_or(0))
    }

    fn attribute(&self, device: Device, attribute: c_int) -> Result<c_int, CudaError> {
        let mut value: c_int = 0;
        call!(
            self,
            cuDeviceGetAttribute(
                &raw mut value => *mut c_int, attribute => c_int, device.0 => c_int,
            )
        )?;
        Ok(value)
    }

    /// A context of this process on a card, current in this thread. It ends with the value.
    pub fn context(&self, device: Device) -> Result<Context<'_>, CudaError> {
        let mut raw: *mut c_void = ptr::null_mut();
        call!(
            self,
            cuCtxCreate_v2(&raw mut raw => *mut *mut c_void, 0 => c_uint, device.0 => c_int)
        )?;
        Ok(Context { driver: self, raw })
    }

    fn symbol<T>(&self, name: &'static str) -> Result<Symbol<'_, T>, CudaError> {
        // SAFETY: each caller names a function of `cuda.h` with its signature.
        let symbol = unsafe { self.library.get(name.as_bytes()) };
        symbol.map_err(|source| CudaError::Symbol { name, source })
    }
}

/// `GPU-` and the digits in groups of 4, 2, 2, 2 and 6 bytes.
fn uuid_text(bytes: [u8; 16]) -> String {
    let digits = bytes.map(|byte| format!("{byte:02x}"));
    let groups = [0..4, 4..6, 6..8, 8..10, 10..16];
    let groups = groups.map(|group| digits.get(group).unwrap_or_default().concat());
    format!("GPU-{}", groups.join("-"))
}

fn refused(call: &'static str, code: c_int) -> Result<(), CudaError> {
    if code == 0 { Ok(()) } else { Err(CudaError::Refused { call, code: Code(code) }) }
}

/// A context.
#[derive(Debug)]
pub struct Context<'a> {
    driver: &'a Driver,
    raw: *mut c_void,
}

impl Context<'_> {
    /// Allocates memory of the card, which is given back with the value.
    pub fn allocate(&self, bytes: usize) -> Result<Allocation<'_>, CudaError> {
        let mut address: u64 = 0;
        call!(self.driver, cuMemAlloc_v2(&raw mut address => *mut u64, bytes => usize))?;
        Ok(Allocation { context: self, address, bytes })
    }

    /// What is left, and what there is.
    pub fn memory(&self) -> Result<MemoryInfo, CudaError> {
        let (mut free, mut total) = (0_usize, 0_usize);
        call!(
            self.driver,
            cuMemGetInfo_v2(&raw mut free => *mut usize, &raw mut total => *mut usize)
        )?;
        Ok(MemoryInfo { free, total })
    }

    /// Sets a byte at an address that nothing was allocated at. A driver that checks addresses refuses.
    pub fn write_anywhere(&self, address: u64) -> Result<(), CudaError> {
        call!(self.driver, cuMemsetD8_v2(address => u64, 1 => u8, 1 => usize))
    }

    /// Waits until all work of the context is done.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        call!(self.driver, cuCtxSynchronize())
    }

    fn destroy(&self) -> Result<(), CudaError> {
        call!(self.driver, cuCtxDestroy_v2(self.raw => *mut c_void))
    }
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        // Of a context that was lost nothing is left to be given back.
        drop(self.destroy());
    }
}

/// Memory of a card.
#[derive(Debug)]
pub struct Allocation<'a> {
    context: &'a Context<'a>,
    address: u64,
    bytes: usize,
}

impl Allocation<'_> {
    /// Sets every byte, so that the memory is there and not only promised.
    pub fn fill(&self, byte: u8) -> Result<(), CudaError> {
        let driver = self.context.driver;
        call!(
            driver,
            cuMemsetD8_v2(self.address => u64, byte => u8, self.bytes => usize)
        )
    }

    fn free(&self) -> Result<(), CudaError> {
        call!(self.context.driver, cuMemFree_v2(self.address => u64))
    }
}

impl Drop for Allocation<'_> {
    fn drop(&mut self) {
        // As with a context.
        drop(self.free());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_without_the_function_says_which() {
        // This process itself, which has none of CUDA's functions.
        let library = libloading::os::unix::Library::this().into();
        let error = Driver { library }.init().unwrap_err();
        assert_eq!(error.to_string(), "`libcuda.so.1` has no `cuInit`");
        assert_eq!(error.code(), None);
    }

    #[test]
    fn a_uuid_is_written_as_nvml_does() {
        let bytes = [
            0xcb, 0x12, 0x13, 0xa3, 0xd6, 0xa4, 0xbe, 0x7f, 0x0d, 0x2c, 0x8b, 0x2f, 0x6c, 0x3c,
            0x7a, 0x01,
        ];
        assert_eq!(uuid_text(bytes), "GPU-cb1213a3-d6a4-be7f-0d2c-8b2f6c3c7a01");
    }

    #[test]
    fn a_result_has_its_name_and_number() {
        assert_eq!(Code(807).to_string(), "CUDA_ERROR_MPS_SERVER_NOT_READY (807)");
        assert_eq!(Code(12345).to_string(), "CUDA error 12345");
    }
}
