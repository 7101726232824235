//! Names that other programs know: labels, conditions, environment variables.

/// The node label that picks a config of the `ConfigMap` (TKE document; NVIDIA's plugin).
pub const CONFIG_LABEL: &str = "nvidia.com/device-plugin.config";

/// The node label whose value `mps` picks the config [`MEMORY_CONFIG`] (ACK document).
pub const SCHEDULE_LABEL: &str = "ack.node.gpu.schedule";

/// The config that [`SCHEDULE_LABEL`]` = mps` picks.
pub const MEMORY_CONFIG: &str = "gpu-mem";

/// The `ConfigMap` with one key per config.
pub const CONFIG_MAP: &str = "nvidia-device-plugin-configs";

/// The type of the node condition that says whether the node's config is in force.
pub const CONDITION: &str = "MPSShareReady";

/// The resource of whole cards, and of shared ones unless they are renamed.
pub const GPU_RESOURCE: &str = "nvidia.com/gpu";

/// The resource of memory units (ACK document).
pub const MEMORY_RESOURCE: &str = "aliyun.com/gpu-mem";

/// The node annotation with the node's cards, see [`crate::inventory_annotation`].
pub const NODE_GPUS: &str = "mpshare.io/gpus";

/// The node annotation by which people have cards emptied, see [`crate::drain`].
pub const DRAIN: &str = "mpshare.io/drain";

/// The number of GPUs: of a node, and as a pod label how many one container wants.
pub const GPU_COUNT: &str = "aliyun.com/gpu-count";

/// The node label that chooses among the GPUs of a node: `binpack` or `spread`.
pub const PLACEMENT_LABEL: &str = "ack.node.gpu.placement";

/// The node label with the most pods on one GPU.
pub const MAX_POD_LABEL: &str = "ack.node.gpu.max-pod";

/// The pod annotation that says which GPU each container has, see [`crate::pod_allocation`].
pub const ALLOCATION: &str = "mpshare.io/allocation";

/// Aliyun's annotations of the first kind: the GPU's index, when all containers are on one.
pub const V1_INDEX: &str = "ALIYUN_COM_GPU_MEM_IDX";

/// The units of the pod.
pub const V1_POD: &str = "ALIYUN_COM_GPU_MEM_POD";

/// The units of its GPU.
pub const V1_DEVICE: &str = "ALIYUN_COM_GPU_MEM_DEV";

/// `false` until the node has handed the units out.
pub const V1_ASSIGNED: &str = "ALIYUN_COM_GPU_MEM_ASSIGNED";

/// When the scheduler decided, in nanoseconds since 1970.
pub const V1_ASSUME_TIME: &str = "ALIYUN_COM_GPU_MEM_ASSUME_TIME";

/// Aliyun's annotation of the second kind: container index, GPU index, units.
pub const V2_ALLOCATION: &str = "scheduler.framework.gpushare.allocation";

/// As [`V1_ASSIGNED`].
pub const V2_ASSIGNED: &str = "scheduler.framework.gpushare.assigned";

/// As [`V1_ASSUME_TIME`].
pub const V2_ASSUME_TIME: &str = "scheduler.framework.gpushare.assume-time";

/// Where a CUDA process finds its control daemon.
pub const ENV_PIPE_DIRECTORY: &str = "CUDA_MPS_PIPE_DIRECTORY";

/// Where the control daemon and its servers log.
pub const ENV_LOG_DIRECTORY: &str = "CUDA_MPS_LOG_DIRECTORY";

/// A client's own memory limit; it may only lower the server's.
pub const ENV_MEMORY_LIMIT: &str = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";

/// A client's own thread percentage; it may only lower the server's.
pub const ENV_THREAD_PERCENTAGE: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";

/// The cards that CUDA shows.
pub const ENV_CUDA_DEVICES: &str = "CUDA_VISIBLE_DEVICES";

/// The cards that NVIDIA's container runtime injects.
pub const ENV_NVIDIA_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";

/// The index of the card that a container with memory units uses; one of the four variables of
/// ACK's device plugin (facts/aliyun-gpushare.md 1.4). Programs read them, nothing obeys them.
pub const ENV_GPU_MEM_INDEX: &str = "ALIYUN_COM_GPU_MEM_IDX";

/// The memory units of the pod; as with ACK, those of this container.
pub const ENV_GPU_MEM_POD: &str = "ALIYUN_COM_GPU_MEM_POD";

/// The memory units of this container.
pub const ENV_GPU_MEM_CONTAINER: &str = "ALIYUN_COM_GPU_MEM_CONTAINER";

/// All memory units of the card.
pub const ENV_GPU_MEM_DEVICE: &str = "ALIYUN_COM_GPU_MEM_DEV";

/// The key under which a Kubernetes object names the program that wrote it.
pub const FIELD_MANAGER: &str = "mpshare";
