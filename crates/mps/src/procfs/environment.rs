//! `/proc/PID/environ`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

/// The variables that a process was started with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Environment(Vec<u8>);

impl Environment {
    /// Takes the file's content.
    pub const fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The value of a variable; of a repeated one the first, as `getenv` has it.
    pub fn get(&self, name: &str) -> Option<OsString> {
        self.0
            .split(|byte| *byte == 0)
            .find_map(|entry| {
                entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(OsStr::from_bytes)
            })
            .map(OsStr::to_owned)
    }
}
