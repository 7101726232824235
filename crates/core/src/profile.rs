//! What a driver version can do under MPS.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::ComputeCapability;

/// A driver version such as `555.58.02`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DriverVersion {
    branch: u32,
    text: String,
}

/// A text that isn't a driver version.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is no driver version; it must look like `555.58.02`")]
pub struct ParseDriverError(String);

impl DriverVersion {
    /// The number before the first dot.
    pub const fn branch(&self) -> u32 {
        self.branch
    }

    /// The version as the driver gives it.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for DriverVersion {
    type Err = ParseDriverError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseDriverError(text.to_owned());
        let branch = text.split('.').next().and_then(|part| part.parse().ok()).ok_or_else(error)?;
        if !text.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
            return Err(error());
        }
        Ok(Self { branch, text: text.to_owned() })
    }
}

impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The behaviour of the MPS programs of a range of drivers (facts/mps.md 1.2, 1.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum VersionProfile {
    /// 535 and up to 549: no `get_server_status`, no pid file.
    R535,
    /// 550 to 554.
    R550,
    /// 555 to 589: unknown flags are refused, `-multiuser-server` exists.
    R555,
    /// 590 to 614: 60 clients.
    R590,
    /// 615 and newer: protocol 3 exists, protocol 2 stays the default.
    R615,
}

impl VersionProfile {
    /// The profile of a driver; `None` for one before 535. A driver newer than any known one gets
    /// the newest profile.
    pub fn of(driver: &DriverVersion) -> Option<Self> {
        match driver.branch {
            0..535 => None,
            535..550 => Some(Self::R535),
            550..555 => Some(Self::R550),
            555..590 => Some(Self::R555),
            590..615 => Some(Self::R590),
            615.. => Some(Self::R615),
        }
    }

    /// Whether the driver is newer than any that this profile was read from.
    pub const fn is_guess_for(driver: &DriverVersion) -> bool {
        driver.branch > 620
    }

    /// The most client contexts that one card takes (facts/mps.md 3).
    pub fn client_cap(self, capability: ComputeCapability) -> u32 {
        if capability < ComputeCapability::VOLTA {
            16
        } else if self >= Self::R590 {
            60
        } else {
            48
        }
    }

    /// Whether the control daemon knows `get_server_status`.
    pub fn has_server_status(self) -> bool {
        self >= Self::R550
    }

    /// Whether one server can serve clients of several uids.
    pub fn has_multiuser_server(self) -> bool {
        self >= Self::R555
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(driver: &str) -> Option<VersionProfile> {
        VersionProfile::of(&driver.parse().unwrap())
    }

    #[test]
    fn drivers_map_to_profiles_and_unknown_newer_ones_to_the_newest() {
        assert_eq!(profile("470.82.01"), None);
        assert_eq!(profile("535.161.07"), Some(VersionProfile::R535));
        assert_eq!(profile("550.163.01"), Some(VersionProfile::R550));
        assert_eq!(profile("580.65.06"), Some(VersionProfile::R555));
        assert_eq!(profile("590.1"), Some(VersionProfile::R590));
        assert_eq!(profile("700.1"), Some(VersionProfile::R615));
    }

    #[test]
    fn a_v100_takes_48_clients_and_not_16() {
        let v100 = ComputeCapability { major: 7, minor: 0 };
        let p4 = ComputeCapability { major: 6, minor: 1 };
        assert_eq!(VersionProfile::R535.client_cap(v100), 48);
        assert_eq!(VersionProfile::R590.client_cap(v100), 60);
        assert_eq!(VersionProfile::R590.client_cap(p4), 16);
    }
}
