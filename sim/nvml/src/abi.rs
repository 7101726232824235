//! The C types of NVML that the exported functions take, and safe access to the caller's pointers.
//!
//! Every pointer comes from a C caller that has promised, by calling an NVML function at all, that
//! it is null or points to what the function's signature says. The types below have no other
//! constructor, so that promise is the safety argument of each dereference here, and there is none
//! elsewhere.

use std::ffi::{CStr, c_char, c_uint, c_ulonglong, c_void};
use std::ptr;

use crate::status::Status;

/// An `nvmlDevice_t` or `nvmlEventSet_t`: opaque to the caller, and never dereferenced by us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Handle(*mut c_void);

impl Handle {
    pub(crate) fn from_number(number: usize) -> Self {
        Self(ptr::without_provenance_mut(number))
    }

    pub(crate) fn number(self) -> usize {
        self.0.addr()
    }
}

/// Where the caller wants one value, or an array of them.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T: Copy> Out<T> {
    /// Writes the value; null is an invalid argument.
    pub(crate) fn set(self, value: T) -> Result<(), Status> {
        if self.0.is_null() {
            return Err(Status::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so the C caller's promise makes it valid for one write of `T`.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// Reads what the caller has put there (a version or a capacity).
    pub(crate) fn get(self) -> Result<T, Status> {
        if self.0.is_null() {
            return Err(Status::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so the C caller's promise makes it an initialised `T`.
        Ok(unsafe { self.0.read() })
    }

    /// Fills an array by NVML's rule: `count` says how many fit and receives how many there are; an
    /// array that is too small gets nothing.
    pub(crate) fn fill(self, count: Out<c_uint>, values: &[T]) -> Result<(), Status> {
        let capacity = usize::try_from(count.get()?).unwrap_or(usize::MAX);
        count.set(c_uint::try_from(values.len()).unwrap_or(c_uint::MAX))?;
        if values.is_empty() {
            return Ok(());
        }
        if self.0.is_null() || capacity < values.len() {
            return Err(Status::INSUFFICIENT_SIZE);
        }
        // SAFETY: the caller promises room for `capacity` elements, which is at least
        // `values.len()`, and its array can't overlap a slice of ours.
        unsafe { ptr::copy_nonoverlapping(values.as_ptr(), self.0, values.len()) };
        Ok(())
    }
}

/// A character buffer of the caller; the length comes as another argument.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(crate) struct TextOut(*mut c_char);

impl TextOut {
    /// Writes `text` and its final NUL.
    pub(crate) fn write(self, length: c_uint, text: &str) -> Result<(), Status> {
        if self.0.is_null() {
            return Err(Status::INVALID_ARGUMENT);
        }
        if usize::try_from(length).unwrap_or(usize::MAX) <= text.len() {
            return Err(Status::INSUFFICIENT_SIZE);
        }
        let bytes: Vec<c_char> = chars(text).chain([0]).collect();
        // SAFETY: the caller promises a buffer of `length` bytes, more than the text is long.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.0, bytes.len()) };
        Ok(())
    }
}

/// A NUL-terminated text of the caller.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(crate) struct TextIn(*const c_char);

impl TextIn {
    /// The text; null or bytes that aren't UTF-8 are an invalid argument.
    pub(crate) fn read(self) -> Result<String, Status> {
        if self.0.is_null() {
            return Err(Status::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so the C caller's promise makes it a NUL-terminated string.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map(str::to_owned).map_err(|_| Status::INVALID_ARGUMENT)
    }
}

/// `text` in a fixed array, cut so that a final NUL stays.
pub(crate) fn text_array<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (slot, value) in array.iter_mut().take(N.saturating_sub(1)).zip(chars(text)) {
        *slot = value;
    }
    array
}

fn chars(text: &str) -> impl Iterator<Item = c_char> {
    text.bytes().map(|byte| c_char::from_ne_bytes([byte]))
}

/// `nvmlPciInfo_t` since v2.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct PciInfo {
    pub(crate) bus_id_legacy: [c_char; 16],
    pub(crate) domain: c_uint,
    pub(crate) bus: c_uint,
    pub(crate) device: c_uint,
    pub(crate) pci_device_id: c_uint,
    pub(crate) pci_subsystem_id: c_uint,
    pub(crate) bus_id: [c_char; 32],
}

/// `nvmlPciInfo_t` of the unsuffixed function: no subsystem and no long bus id.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct PciInfoV1 {
    pub(crate) bus_id: [c_char; 16],
    pub(crate) domain: c_uint,
    pub(crate) bus: c_uint,
    pub(crate) device: c_uint,
    pub(crate) pci_device_id: c_uint,
}

/// `nvmlMemory_t`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct MemoryV1 {
    pub(crate) total: c_ulonglong,
    pub(crate) free: c_ulonglong,
    pub(crate) used: c_ulonglong,
}

/// `nvmlMemory_v2_t`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct MemoryV2 {
    pub(crate) version: c_uint,
    pub(crate) total: c_ulonglong,
    pub(crate) reserved: c_ulonglong,
    pub(crate) free: c_ulonglong,
    pub(crate) used: c_ulonglong,
}

/// What the caller must put into [`MemoryV2::version`]: the struct's size and its number.
pub(crate) const MEMORY_V2: c_uint = 0x28 | (2 << 24);

/// `nvmlUtilization_t`, in per cent.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Utilization {
    pub(crate) gpu: c_uint,
    pub(crate) memory: c_uint,
}

/// `nvmlProcessInfo_t` since v2.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct ProcessInfo {
    pub(crate) pid: c_uint,
    pub(crate) used_gpu_memory: c_ulonglong,
    pub(crate) gpu_instance_id: c_uint,
    pub(crate) compute_instance_id: c_uint,
}

/// `nvmlProcessInfo_t` of the unsuffixed functions.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct ProcessInfoV1 {
    pub(crate) pid: c_uint,
    pub(crate) used_gpu_memory: c_ulonglong,
}

/// `nvmlProcessUtilizationSample_t`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct ProcessUtilizationSample {
    pub(crate) pid: c_uint,
    pub(crate) time_stamp: c_ulonglong,
    pub(crate) sm: c_uint,
    pub(crate) memory: c_uint,
    pub(crate) encoder: c_uint,
    pub(crate) decoder: c_uint,
}

/// `nvmlEventData_t` since v2.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct EventData {
    pub(crate) device: Handle,
    pub(crate) kind: c_ulonglong,
    pub(crate) data: c_ulonglong,
    pub(crate) gpu_instance_id: c_uint,
    pub(crate) compute_instance_id: c_uint,
}

/// `nvmlEventData_t` of the unsuffixed wait.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct EventDataV1 {
    pub(crate) device: Handle,
    pub(crate) kind: c_ulonglong,
    pub(crate) data: c_ulonglong,
}
