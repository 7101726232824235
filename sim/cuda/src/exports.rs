//! The exported symbols, by subject. A function here converts its arguments, calls one safe
//! function and writes the answer out; it decides nothing.

mod contexts;
mod devices;
mod errors;
mod memory;
mod modules;

/// Declares exported driver functions: the body yields `Result<(), Status>`, the caller gets the
/// code.
macro_rules! cuda {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*) $body:block)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $type),*) -> $crate::status::Status {
            let body = || -> Result<(), $crate::status::Status> { $body };
            match body() {
                Ok(()) => $crate::status::Status::SUCCESS,
                Err(status) => status,
            }
        }
    )*};
}

use cuda;
