//! The device ids that the kubelet hands out.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::GpuUuid;

/// A token that the kubelet counts: `GPU-<uuid>` for a whole card, `GPU-<uuid>::<n>` for one unit
/// of a shared card (the form of NVIDIA's plugin).
///
/// Which card it belongs to is fixed; how much it stands for is decided when it is granted
/// ([`crate::grant()`]), by the plan in force at that moment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId {
    gpu: GpuUuid,
    replica: Option<u32>,
}

/// A text that isn't one of our device ids.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is no device id; it must look like `GPU-<uuid>` or `GPU-<uuid>::<n>`")]
pub struct ParseDeviceIdError(String);

impl DeviceId {
    /// The token of a whole card.
    pub const fn whole(gpu: GpuUuid) -> Self {
        Self { gpu, replica: None }
    }

    /// The token of one unit of a shared card.
    pub const fn replica(gpu: GpuUuid, replica: u32) -> Self {
        Self { gpu, replica: Some(replica) }
    }

    /// The card.
    pub const fn gpu(&self) -> &GpuUuid {
        &self.gpu
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.replica {
            None => write!(f, "{}", self.gpu),
            Some(replica) => write!(f, "{}::{replica}", self.gpu),
        }
    }
}

impl FromStr for DeviceId {
    type Err = ParseDeviceIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseDeviceIdError(text.to_owned());
        match text.split_once("::") {
            None => Ok(Self::whole(text.parse().map_err(|_| error())?)),
            Some((gpu, replica)) => {
                let number = replica.parse::<u32>().map_err(|_| error())?;
                let id = Self::replica(gpu.parse().map_err(|_| error())?, number);
                // `::01` or `::+1` would be a second name of the same unit.
                if id.to_string() == text { Ok(id) } else { Err(error()) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_what_it_prints_and_nothing_else() {
        for text in ["GPU-ab", "GPU-ab::0", "GPU-ab::59"] {
            assert_eq!(text.parse::<DeviceId>().unwrap().to_string(), text);
        }
        for text in ["", "GPU-ab::", "GPU-ab::01", "GPU-ab::-1", "GPU-ab::+1", "ab::1", "GPU-ab:1"]
        {
            assert_eq!(text.parse::<DeviceId>(), Err(ParseDeviceIdError(text.to_owned())));
        }
    }
}
