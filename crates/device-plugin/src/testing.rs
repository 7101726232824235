//! Values that several test modules start from.

use std::path::Path;

use mpshare_api::status::{DaemonStatus, LimitsStatus};
use mpshare_api::{ChosenConfig, GpuState, GpuStatus, MpsRoot, NodeStatus, write_document};
use mpshare_core::{
    ComputeCapability, DeviceId, Gpu, GpuUuid, Inventory, LiveShare, Memory, MigMode, Mode,
    NodeConfig, ResourceName, Share, ThreadPercent,
};

use crate::{Options, Timings};

pub(crate) const HOST_ROOT: &str = "/run/nvidia/mps";

pub(crate) fn options(dir: &Path) -> Options {
    Options {
        plugins_dir: dir.join("device-plugins"),
        pod_resources_socket: dir.join("pod-resources.sock"),
        mps_root: dir.join("mps"),
        host_mps_root: dir.join("mps"),
        dev_root: dir.join("dev"),
        cdi_kind: "nvidia.com/gpu".into(),
        timings: Timings::default(),
    }
}

pub(crate) fn resource(name: &str) -> ResourceName {
    name.parse().unwrap()
}

pub(crate) fn uuid(index: u32) -> GpuUuid {
    format!("GPU-{index:08}-0000-0000-0000-000000000000").parse().unwrap()
}

pub(crate) fn unit(gpu: u32, n: u32) -> DeviceId {
    DeviceId::replica(uuid(gpu), n)
}

pub(crate) fn gpu(index: u32) -> Gpu {
    Gpu {
        uuid: uuid(index),
        index,
        minor: index,
        model: "Tesla T4".into(),
        memory: Memory::from_mib(15360),
        compute_capability: ComputeCapability { major: 7, minor: 5 },
        mig: MigMode::Unsupported,
        numa_node: Some(index),
    }
}

pub(crate) fn inventory(cards: u32) -> Inventory {
    Inventory { driver: "555.58.02".parse().unwrap(), gpus: (0..cards).map(gpu).collect() }
}

pub(crate) fn shared_config(replicas: u32) -> String {
    format!("sharing: {{mps: {{resources: [{{name: nvidia.com/gpu, replicas: {replicas}}}]}}}}")
}

pub(crate) fn node_config(replicas: u32) -> NodeConfig {
    mpshare_api::config::parse("test", &shared_config(replicas)).unwrap().node
}

pub(crate) fn write_config(root: &MpsRoot, name: &str, text: &str) {
    let chosen = ChosenConfig {
        version: ChosenConfig::VERSION,
        name: name.into(),
        why: "a test".into(),
        text: text.into(),
        drain: mpshare_api::DrainWish::default(),
    };
    write_document(&root.config(), &chosen).unwrap();
}

/// A card that is shared and ready, at a generation.
pub(crate) fn ready(index: u32, generation: &str) -> GpuStatus {
    let paths = MpsRoot::new(HOST_ROOT).gpu(&resource("nvidia.com/gpu"), &uuid(index));
    GpuStatus {
        state: GpuState::Ready,
        generation: generation.into(),
        daemon: Some(DaemonStatus {
            pid: 100,
            pipe_directory: paths.pipe().display().to_string(),
            server: None,
            limits: Some(LimitsStatus { memory_mib: 7680, percent_tenths: 500 }),
            clients: Vec::new(),
        }),
        ..GpuStatus::starting(&gpu(index))
    }
}

pub(crate) fn status(gpus: Vec<GpuStatus>) -> NodeStatus {
    NodeStatus {
        version: NodeStatus::VERSION,
        config: "test".into(),
        driver: "555.58.02".into(),
        shared_memory: mpshare_api::SharedMemory::PerCard,
        former_pods: mpshare_api::status::FormerPods::default(),
        gpus,
        reasons: Vec::new(),
    }
}

/// A share under MPS of 7,680 MiB and 50 % a unit.
pub(crate) fn share(ids: &[DeviceId], mib: u64, tenths: u32) -> LiveShare {
    LiveShare {
        ids: ids.to_vec(),
        gpu: ids[0].gpu().clone(),
        resource: resource("nvidia.com/gpu"),
        mode: Mode::Mps,
        share: Share {
            memory: Memory::from_mib(mib),
            percent: ThreadPercent::from_tenths(tenths).unwrap(),
        },
    }
}
