//! The format as types. Their names and comments are the JSON Schema.
//!
//! Every section refuses unknown keys. A key without a value counts as absent, as in NVIDIA's
//! plugin.

use schemars::JsonSchema;
use serde::Deserialize;

use super::scalar::{Amount, At, Devices, GoDuration, Number, Strategies};

/// A config of the NVIDIA device plugin, as mpshare reads it.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schemars(title = "mpshare config")]
pub(crate) struct Document {
    /// The version of the format; `v1` when it's missing.
    #[schemars(extend("enum" = ["v1", null]))]
    pub(crate) version: Option<At<String>>,
    /// Settings of the programs.
    pub(crate) flags: Option<Flags>,
    /// Read and without effect, as in NVIDIA's plugin.
    pub(crate) resources: Option<Resources>,
    /// Which cards are shared, and how.
    pub(crate) sharing: Option<Sharing>,
    /// IMEX channels; not supported, so they may not be required.
    pub(crate) imex: Option<Imex>,
}

/// Settings of the programs.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Flags {
    /// `none`; MIG and MPS exclude each other on a card.
    #[schemars(extend("enum" = ["none", "single", "mixed", null]))]
    pub(crate) mig_strategy: Option<At<String>>,
    /// Without effect: a failure is reported and retried.
    pub(crate) fail_on_init_error: Option<bool>,
    /// Without effect: the programs take `--mps-root`.
    pub(crate) mps_root: Option<String>,
    /// Without effect: the programs take `--driver-root`.
    pub(crate) nvidia_driver_root: Option<String>,
    /// Without effect.
    pub(crate) nvidia_dev_root: Option<String>,
    /// Not supported; may be false.
    pub(crate) gdrcopy_enabled: Option<At<bool>>,
    /// Not supported; may be false.
    pub(crate) gds_enabled: Option<At<bool>>,
    /// Not supported; may be false.
    pub(crate) mofed_enabled: Option<At<bool>>,
    /// Without effect.
    #[serde(rename = "useNodeFeatureAPI")]
    pub(crate) use_node_feature_api: Option<bool>,
    /// How cards are found: by NVML.
    #[schemars(extend("enum" = ["auto", "nvml", null]))]
    pub(crate) device_discovery_strategy: Option<At<String>>,
    /// Settings of the device plugin.
    pub(crate) plugin: Option<PluginFlags>,
    /// Settings of GPU feature discovery; without effect.
    pub(crate) gfd: Option<GfdFlags>,
}

/// Settings of the device plugin.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct PluginFlags {
    /// Whether device nodes are listed in the answer to the kubelet.
    pub(crate) pass_device_specs: Option<bool>,
    /// How a container is told of its cards; `envvar` unless given.
    pub(crate) device_list_strategy: Option<At<Strategies>>,
    /// What a card is called in that list; `uuid` unless given.
    #[serde(rename = "deviceIDStrategy")]
    #[schemars(extend("enum" = ["uuid", "index", null]))]
    pub(crate) device_id_strategy: Option<At<String>>,
    /// The prefix of CDI annotations; `cdi.k8s.io/` unless given.
    pub(crate) cdi_annotation_prefix: Option<At<String>>,
    /// Without effect.
    #[serde(rename = "nvidiaCTKPath")]
    pub(crate) nvidia_ctk_path: Option<String>,
    /// Without effect.
    pub(crate) container_driver_root: Option<String>,
    /// Which card is filled first: the emptiest (`distributed`, the default) or the fullest that
    /// still fits (`packed`).
    #[schemars(extend("enum" = ["distributed", "packed", null]))]
    pub(crate) shared_devices_allocation_policy: Option<At<String>>,
}

/// Settings of GPU feature discovery; without effect.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct GfdFlags {
    /// Without effect.
    oneshot: Option<bool>,
    /// Without effect.
    no_timestamp: Option<bool>,
    /// Without effect.
    sleep_interval: Option<GoDuration>,
    /// Without effect.
    output_file: Option<String>,
    /// Without effect.
    machine_type_file: Option<String>,
}

/// Patterns of product names; without effect, as in NVIDIA's plugin.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Resources {
    /// Patterns of whole cards.
    gpus: Option<Vec<Pattern>>,
    /// Patterns of MIG profiles.
    mig: Option<Vec<Pattern>>,
}

/// One pattern.
#[expect(dead_code, reason = "read so that its keys are checked, and without effect")]
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Pattern {
    /// With `*` as wildcard.
    pattern: String,
    /// The resource's name.
    name: String,
}

/// Which cards are shared, and how.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Sharing {
    /// Not supported; may be empty.
    pub(crate) time_slicing: Option<At<Replicated>>,
    /// Sharing by MPS.
    pub(crate) mps: Option<At<Replicated>>,
}

/// Resources that are cut into replicas.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Replicated {
    /// Whether a shared resource without `rename` gets the suffix `.shared`.
    pub(crate) rename_by_default: Option<bool>,
    /// Whether a container may ask for one unit only. By default it may ask for several units,
    /// which come from one card and add up.
    pub(crate) fail_requests_greater_than_one: Option<bool>,
    /// One entry per kind of sharing.
    pub(crate) resources: Option<Vec<At<Entry>>>,
}

/// Cards that are cut into units: `replicas` equal parts, or amounts of `memoryUnit`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("oneOf" = [{"required": ["replicas"]}, {"required": ["memoryUnit"]}]))]
pub(crate) struct Entry {
    /// `nvidia.com/gpu`, or `gpu` for short; with `memoryUnit`, the name that pods ask for:
    /// `aliyun.com/gpu-mem`, or `gpu-mem` for short.
    #[schemars(required)]
    pub(crate) name: Option<At<String>>,
    /// The name under which the units are offered.
    pub(crate) rename: Option<At<String>>,
    /// Which cards; `all` unless given, and then all that no other entry names.
    pub(crate) devices: Option<At<Devices>>,
    /// Units per card: 1 means whole cards without MPS; drivers from r590 on take up to 60, older
    /// ones up to 48.
    #[schemars(range(min = 1, max = 60))]
    pub(crate) replicas: Option<At<Number>>,
    /// Instead of `replicas`: the memory of one unit, such as `1Gi`. Each card has as many units
    /// as fit into it; n units of one card are n times the memory, with all threads. This key is
    /// none of NVIDIA's.
    pub(crate) memory_unit: Option<At<Amount>>,
    /// With `memoryUnit`: memory of each card that is in no unit, such as `512Mi`.
    pub(crate) reserve: Option<At<Amount>>,
}

/// IMEX channels.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Imex {
    /// Without effect.
    #[serde(rename = "channelIDs")]
    channel_ids: Option<Vec<u32>>,
    /// Not supported; may be false.
    pub(crate) required: Option<At<bool>>,
}
