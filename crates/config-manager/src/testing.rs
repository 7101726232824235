//! Values that several test modules start from.

use mpshare_api::status::FormerPods;
use mpshare_api::{GpuState, GpuStatus, NodeStatus, SharedMemory};

/// A T4 that is ready and that nobody uses.
pub(crate) fn gpu(uuid: &str, index: u32) -> GpuStatus {
    GpuStatus {
        uuid: uuid.to_owned(),
        index,
        minor: index,
        model: "Tesla T4".to_owned(),
        memory_mib: 15360,
        compute_capability: (7, 5),
        mig: None,
        numa_node: None,
        state: GpuState::Ready,
        reason: None,
        generation: "mps/nvidia.com/gpu/2x7680M@50.0".to_owned(),
        daemon: None,
        processes: Vec::new(),
        outside_mib: 0,
        findings: Vec::new(),
    }
}

/// A report on these cards.
pub(crate) fn status(config: &str, gpus: Vec<GpuStatus>) -> NodeStatus {
    NodeStatus {
        version: NodeStatus::VERSION,
        config: config.to_owned(),
        driver: "550.54.15".to_owned(),
        shared_memory: SharedMemory::PerCard,
        former_pods: FormerPods::default(),
        gpus,
        reasons: Vec::new(),
    }
}
