//! What several unit tests need.

use mpshare_core::{ComputeCapability, Gpu, Memory, MigMode};

/// A T4.
pub(crate) fn t4(uuid: &str) -> Gpu {
    Gpu {
        uuid: uuid.parse().unwrap(),
        index: 0,
        minor: 0,
        model: "Tesla T4".to_owned(),
        memory: Memory::from_mib(15360),
        compute_capability: ComputeCapability { major: 7, minor: 5 },
        mig: MigMode::Unsupported,
        numa_node: None,
    }
}
