//! `flags` and `imex`: what the device plugin acts on, what has no effect, what is refused.

use mpshare_core::AllocationPolicy;

use super::form::{Document, Flags, Imex, PluginFlags};
use super::keys::nearest;
use super::mistake::{Mistake, Position};
use super::scalar::{At, Number, OneOrMany, Strategies};
use crate::layout::MpsRoot;

/// How the device plugin hands devices to containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginOptions {
    /// `deviceListStrategy`, at least one, without repetition.
    pub device_list: Vec<DeviceListStrategy>,
    /// `deviceIDStrategy`.
    pub device_ids: DeviceIdStrategy,
    /// `passDeviceSpecs`: whether device nodes are listed in the answer to the kubelet.
    pub pass_device_specs: bool,
    /// `cdiAnnotationPrefix`, with its slash.
    pub cdi_annotation_prefix: String,
}

/// How a container is told of its cards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceListStrategy {
    /// The variable `NVIDIA_VISIBLE_DEVICES`.
    Envvar,
    /// `/dev/null` mounted under the names of the cards.
    VolumeMounts,
    /// CDI names in annotations of the container.
    CdiAnnotations,
    /// CDI names in their own field.
    CdiCri,
}

/// What a card is called in the device list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceIdStrategy {
    /// By its UUID.
    Uuid,
    /// By NVML's index.
    Index,
}

impl DeviceListStrategy {
    const NAMES: [(&'static str, Self); 4] = [
        ("envvar", Self::Envvar),
        ("volume-mounts", Self::VolumeMounts),
        ("cdi-annotations", Self::CdiAnnotations),
        ("cdi-cri", Self::CdiCri),
    ];
}

impl Default for PluginOptions {
    fn default() -> Self {
        Self {
            device_list: vec![DeviceListStrategy::Envvar],
            device_ids: DeviceIdStrategy::Uuid,
            pass_device_specs: false,
            cdi_annotation_prefix: "cdi.k8s.io/".to_owned(),
        }
    }
}

/// Refuses what would be a surprise if it were ignored; the rest is the allocation policy.
pub(super) fn check(flags: &Flags) -> Result<AllocationPolicy, Mistake> {
    check_mig(flags.mig_strategy.as_ref())?;
    for (key, value) in [
        ("gdrcopyEnabled", &flags.gdrcopy_enabled),
        ("gdsEnabled", &flags.gds_enabled),
        ("mofedEnabled", &flags.mofed_enabled),
    ] {
        refuse_true(key, value.as_ref(), "set it to false or remove it")?;
    }
    choose(
        "deviceDiscoveryStrategy",
        flags.device_discovery_strategy.as_ref(),
        &[("auto", ()), ("nvml", ())],
    )?;
    let plugin = flags.plugin.as_ref();
    let policy = choose(
        "sharedDevicesAllocationPolicy",
        plugin.and_then(|plugin| plugin.shared_devices_allocation_policy.as_ref()),
        &[("distributed", AllocationPolicy::Distributed), ("packed", AllocationPolicy::Packed)],
    )?;
    Ok(policy.unwrap_or(AllocationPolicy::Distributed))
}

/// What the device plugin acts on.
pub(super) fn plugin_options(flags: &Flags) -> Result<PluginOptions, Mistake> {
    let mut options = PluginOptions::default();
    let Some(plugin) = &flags.plugin else {
        return Ok(options);
    };
    if let Some(strategies) = &plugin.device_list_strategy {
        options.device_list = device_list(strategies)?;
    }
    let names = [("uuid", DeviceIdStrategy::Uuid), ("index", DeviceIdStrategy::Index)];
    if let Some(ids) = choose("deviceIDStrategy", plugin.device_id_strategy.as_ref(), &names)? {
        options.device_ids = ids;
    }
    options.pass_device_specs = plugin.pass_device_specs.unwrap_or_default();
    if let Some(prefix) = &plugin.cdi_annotation_prefix {
        options.cdi_annotation_prefix = annotation_prefix(prefix)?;
    }
    Ok(options)
}

/// The keys that are set and change nothing, by their path.
pub(super) fn ignored(flags: &Flags) -> Vec<&'static str> {
    let none = PluginFlags::default();
    let plugin = flags.plugin.as_ref().unwrap_or(&none);
    let root_is_moved = |root: &String| root != MpsRoot::DEFAULT;
    [
        ("flags.failOnInitError", flags.fail_on_init_error.is_some()),
        ("flags.mpsRoot", flags.mps_root.as_ref().is_some_and(root_is_moved)),
        ("flags.nvidiaDriverRoot", flags.nvidia_driver_root.is_some()),
        ("flags.nvidiaDevRoot", flags.nvidia_dev_root.is_some()),
        ("flags.useNodeFeatureAPI", flags.use_node_feature_api.is_some()),
        ("flags.plugin.nvidiaCTKPath", plugin.nvidia_ctk_path.is_some()),
        ("flags.plugin.containerDriverRoot", plugin.container_driver_root.is_some()),
        ("flags.gfd", flags.gfd.is_some()),
    ]
    .into_iter()
    .filter_map(|(path, is_set)| is_set.then_some(path))
    .collect()
}

/// Even without sharing: the MIG devices that the author expects wouldn't come.
fn check_mig(strategy: Option<&At<String>>) -> Result<(), Mistake> {
    let names = [("none", false), ("single", true), ("mixed", true)];
    let offers_mig = choose("migStrategy", strategy, &names)?;
    match (offers_mig, strategy) {
        (Some(true), Some(strategy)) => Err(Mistake::new(
            strategy.at,
            format!("`migStrategy: {}` offers MIG devices, which mpshare doesn't", strategy.value),
            "set it to `none`; MIG and MPS exclude each other on a card",
        )),
        (Some(_) | None, _) => Ok(()),
    }
}

fn refuse_true(key: &str, value: Option<&At<bool>>, hint: &str) -> Result<(), Mistake> {
    match value {
        Some(At { value: true, at }) => {
            Err(Mistake::new(*at, format!("`{key}: true` isn't supported"), hint))
        }
        Some(_) | None => Ok(()),
    }
}

/// The meaning of a value that has to be one of a few words.
fn choose<T: Copy>(
    key: &str,
    value: Option<&At<String>>,
    names: &[(&str, T)],
) -> Result<Option<T>, Mistake> {
    let Some(At { value, at }) = value else {
        return Ok(None);
    };
    let known = names.iter().find(|(name, _)| name == value);
    let refuse = || not_one_of(*at, key, value, names);
    known.map(|(_, meaning)| Some(*meaning)).ok_or_else(refuse)
}

fn not_one_of<T>(at: Position, key: &str, value: &str, names: &[(&str, T)]) -> Mistake {
    let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
    let hint = match nearest(value, &names) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("it must be one of `{}`", names.join("`, `")),
    };
    Mistake::new(at, format!("`{key}` can't be `{value}`"), hint)
}

fn device_list(strategies: &At<Strategies>) -> Result<Vec<DeviceListStrategy>, Mistake> {
    let known = |value: &Number, at: Position| {
        let value = value.to_string();
        let names = DeviceListStrategy::NAMES;
        let found = names.iter().find(|(name, _)| *name == value);
        found
            .map(|(_, strategy)| *strategy)
            .ok_or_else(|| not_one_of(at, "deviceListStrategy", &value, &names))
    };
    let mut list = match &strategies.value.0 {
        OneOrMany::One(value) => vec![known(value, strategies.at)?],
        OneOrMany::Many(values) => {
            values.iter().map(|item| known(&item.value, item.at)).collect::<Result<Vec<_>, _>>()?
        }
    };
    if list.is_empty() {
        let hint = "name at least one strategy, or remove the key for `envvar`";
        return Err(Mistake::new(strategies.at, "`deviceListStrategy` is empty", hint));
    }
    list.sort_unstable();
    list.dedup();
    Ok(list)
}

/// A prefix ends with a slash, and what is before it is a DNS name.
fn annotation_prefix(prefix: &At<String>) -> Result<String, Mistake> {
    let probe = format!("{}x", prefix.value);
    if prefix.value.ends_with('/') && probe.parse::<mpshare_core::ResourceName>().is_ok() {
        return Ok(prefix.value.clone());
    }
    Err(Mistake::new(
        prefix.at,
        format!("`{}` is no prefix of annotations", prefix.value),
        "it must look like `cdi.k8s.io/`",
    ))
}

impl Document {
    /// `v1`, which is also meant where nothing is said.
    pub(super) fn check_version(&self) -> Result<(), Mistake> {
        match &self.version {
            Some(version) if version.value != "v1" => Err(Mistake::new(
                version.at,
                format!("unknown version `{}`", version.value),
                "the only version is `v1`",
            )),
            Some(_) | None => Ok(()),
        }
    }
}

impl Imex {
    /// Refuses what a workload would miss.
    pub(super) fn check(&self) -> Result<(), Mistake> {
        refuse_true(
            "imex.required",
            self.required.as_ref(),
            "shared cards have no IMEX channels; remove it",
        )
    }
}
