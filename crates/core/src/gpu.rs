//! Facts about the cards of a node.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

use crate::{DriverVersion, Memory};

/// A card's UUID in NVML's form, `GPU-` and hexadecimal digits in groups.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GpuUuid(Arc<str>);

/// A text that isn't the UUID of a card.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is no GPU UUID; it must look like `GPU-cb1213a3-d6a4-be7f-0d2c-8b2f6c3c7a11`")]
pub struct ParseUuidError(String);

impl GpuUuid {
    /// The UUID in full.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first 12 characters (`GPU-cb1213a3`), which name the card's directory: a pipe directory
    /// must fit into 87 bytes (facts/mps.md 1.1).
    pub fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }
}

impl FromStr for GpuUuid {
    type Err = ParseUuidError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let valid = text.strip_prefix("GPU-").is_some_and(|rest| {
            (1..=60).contains(&rest.len())
                && rest.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
        });
        if valid { Ok(Self(text.into())) } else { Err(ParseUuidError(text.to_owned())) }
    }
}

impl fmt::Display for GpuUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// CUDA compute capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ComputeCapability {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

impl ComputeCapability {
    /// From here on MPS isolates memory and takes 48 clients.
    ///
    /// NVIDIA's plugin draws this line at 7.5, which makes a V100 (7.0) pre-Volta: a bug
    /// (facts/nvidia-device-plugin.md 1.4).
    pub const VOLTA: Self = Self { major: 7, minor: 0 };
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Whether a card is partitioned by MIG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigMode {
    /// The card can't do MIG.
    Unsupported,
    /// It could, but isn't.
    Disabled,
    /// It is: MPS can't share it.
    Enabled,
}

/// One card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// Its identity.
    pub uuid: GpuUuid,
    /// NVML's index; people know cards by it.
    pub index: u32,
    /// The N of `/dev/nvidiaN`.
    pub minor: u32,
    /// Product name.
    pub model: String,
    /// NVML's total memory. What the driver reserves is part of it, as in NVIDIA's plugin and in
    /// the ACK document, whose 16-GB card counts 15 units.
    pub memory: Memory,
    /// CUDA compute capability.
    pub compute_capability: ComputeCapability,
    /// MIG state.
    pub mig: MigMode,
    /// NUMA node, where the machine names one.
    pub numa_node: Option<u32>,
}

/// The cards of a node in index order, and the driver that runs them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inventory {
    /// The driver's version.
    pub driver: DriverVersion,
    /// The cards, sorted by index.
    pub gpus: Vec<Gpu>,
}

impl Inventory {
    /// Looks a card up.
    pub fn gpu(&self, uuid: &GpuUuid) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.uuid == *uuid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_can_name_a_directory_and_nothing_else() {
        let uuid: GpuUuid = "GPU-cb1213a3-d6a4-be7f-0d2c-8b2f6c3c7a11".parse().unwrap();
        assert_eq!(uuid.short(), "GPU-cb1213a3");
        for text in ["GPU-", "MIG-cb1213a3", "GPU-../..", "gpu-cb1213a3", "GPU-cb 12", ""] {
            assert_eq!(text.parse::<GpuUuid>(), Err(ParseUuidError(text.to_owned())));
        }
    }
}
