//! Names and texts of errors; they work before the initialisation.

use std::ffi::{CStr, c_char};
use std::ptr;

use super::cuda;
use crate::abi::Out;
use crate::status::Status;

cuda! {
    fn cuGetErrorName(error: Status, name: Out<*const c_char>) {
        let found = error.name();
        name.set(found.map_or(ptr::null(), CStr::as_ptr))?;
        found.map(|_| ()).ok_or(Status::INVALID_VALUE)
    }
    fn cuGetErrorString(error: Status, text: Out<*const c_char>) {
        let found = error.text();
        text.set(found.map_or(ptr::null(), CStr::as_ptr))?;
        found.map(|_| ()).ok_or(Status::INVALID_VALUE)
    }
}
