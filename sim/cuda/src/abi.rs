//! Safe access to the caller's pointers.
//!
//! Every pointer comes from a C caller that has promised, by calling a driver function at all, that
//! it is null or points to what the function's signature says. The types below have no other
//! constructor, so that promise is the safety argument of each dereference here, and there is none
//! elsewhere.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::{ptr, slice};

use crate::status::Status;

/// A `CUcontext`, `CUmodule`, `CUfunction` or `CUstream`: opaque to the caller, and a number to us.
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

/// Where the caller wants one value.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T: Copy> Out<T> {
    /// Writes the value; null is an invalid value.
    pub(crate) fn set(self, value: T) -> Result<(), Status> {
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: not null, so the C caller's promise makes it valid for one write of `T`.
        unsafe { self.0.write(value) };
        Ok(())
    }
}

/// A character buffer of the caller; the length comes as another argument.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(crate) struct TextOut(*mut c_char);

impl TextOut {
    /// Writes as much of `text` as fits, and a final NUL.
    pub(crate) fn write(self, length: c_int, text: &str) -> Result<(), Status> {
        let length = usize::try_from(length).map_err(|_| Status::INVALID_VALUE)?;
        if self.0.is_null() || length == 0 {
            return Err(Status::INVALID_VALUE);
        }
        let shown = text.bytes().take(length - 1).map(|byte| c_char::from_ne_bytes([byte]));
        let bytes: Vec<c_char> = shown.chain([0]).collect();
        // SAFETY: the caller promises a buffer of `length` bytes, and there are at most as many.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.0, bytes.len()) };
        Ok(())
    }
}

/// A NUL-terminated text of the caller.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(crate) struct TextIn(*const c_char);

impl TextIn {
    /// The text; null is an invalid value.
    pub(crate) fn read(self) -> Result<String, Status> {
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: not null, so the C caller's promise makes it a NUL-terminated string.
        let text = unsafe { CStr::from_ptr(self.0) };
        Ok(text.to_string_lossy().into_owned())
    }
}

/// Host memory that a copy reads from; the length comes as another argument.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(crate) struct HostSource(*const u8);

impl HostSource {
    /// A copy of the bytes.
    pub(crate) fn read(self, length: usize) -> Result<Vec<u8>, Status> {
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: not null, so the C caller's promise makes `length` bytes readable.
        Ok(unsafe { slice::from_raw_parts(self.0, length) }.to_vec())
    }
}

/// Host memory that a copy writes to.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(crate) struct HostTarget(*mut u8);

impl HostTarget {
    /// Writes the bytes, of which the caller has said how many there are.
    pub(crate) fn write(self, bytes: &[u8]) -> Result<(), Status> {
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: not null, so the C caller's promise makes it valid for as many bytes as it asked
        // for, which is the length of `bytes`; a slice of ours can't overlap its memory.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.0, bytes.len()) };
        Ok(())
    }
}
