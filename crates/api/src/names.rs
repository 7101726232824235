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

/// The key under which a Kubernetes object names the program that wrote it.
pub const FIELD_MANAGER: &str = "mpshare";
