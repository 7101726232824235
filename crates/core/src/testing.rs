//! Values that several test modules of this crate start from.

use crate::config::{
    AllocationPolicy, Cut, DeviceSelector, Drain, LargeRequests, MemoryUnits, NodeConfig,
    SharedResource,
};
use crate::{
    ComputeCapability, DeviceId, Gpu, GpuUuid, Inventory, LiveShare, Memory, MigMode, Mode,
    ResourceName, Share, ThreadPercent,
};

pub(crate) fn resource(name: &str) -> ResourceName {
    name.parse().unwrap()
}

pub(crate) fn uuid(index: u32) -> GpuUuid {
    format!("GPU-{index:08}-0000-0000-0000-000000000000").parse().unwrap()
}

pub(crate) fn replica(gpu: u32, n: u32) -> DeviceId {
    DeviceId::replica(uuid(gpu), n)
}

pub(crate) fn gpu(index: u32, mib: u64) -> Gpu {
    Gpu {
        uuid: uuid(index),
        index,
        minor: index,
        model: "Tesla T4".to_owned(),
        memory: Memory::from_mib(mib),
        compute_capability: ComputeCapability { major: 7, minor: 5 },
        mig: MigMode::Unsupported,
        numa_node: None,
    }
}

/// Two cards: 15,360 MiB and 32,768 MiB.
pub(crate) fn inventory() -> Inventory {
    Inventory { driver: "555.58.02".parse().unwrap(), gpus: vec![gpu(0, 15360), gpu(1, 32768)] }
}

pub(crate) fn config(replicas: u32) -> NodeConfig {
    NodeConfig {
        exclusive_resource: resource("nvidia.com/gpu"),
        sharing: vec![SharedResource {
            resource: resource("nvidia.com/gpu"),
            cut: Cut::Replicas(replicas),
            devices: DeviceSelector::All,
        }],
        large_requests: LargeRequests::Allow,
        policy: AllocationPolicy::Distributed,
        drain: Drain::Nothing,
    }
}

/// All cards in units of `mib`, but `reserve` of each.
pub(crate) fn memory_config(mib: u64, reserve: u64) -> NodeConfig {
    let mut config = config(1);
    let cut = MemoryUnits { unit: Memory::from_mib(mib), reserve: Memory::from_mib(reserve) };
    config.sharing[0].resource = resource("aliyun.com/gpu-mem");
    config.sharing[0].cut = Cut::Memory(cut);
    config
}

pub(crate) fn held(ids: &[DeviceId], mib: u64, tenths: u32) -> LiveShare {
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
