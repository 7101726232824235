//! The answer to `Allocate`: what a container is given so that it meets its share and nothing
//! else. The kubelet keeps it for the pod's life (facts/kubernetes.md 1.8).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mpshare_api::config::{DeviceIdStrategy, DeviceListStrategy, PluginOptions};
use mpshare_api::names::{
    ENV_CUDA_DEVICES, ENV_GPU_MEM_CONTAINER, ENV_GPU_MEM_DEVICE, ENV_GPU_MEM_INDEX,
    ENV_GPU_MEM_POD, ENV_MEMORY_LIMIT, ENV_NVIDIA_DEVICES, ENV_PIPE_DIRECTORY,
    ENV_THREAD_PERCENTAGE,
};
use mpshare_core::{Gpu, Grant, Inventory, LiveShare, Mode};
use mpshare_kubelet::device_plugin::{CdiDevice, ContainerAllocateResponse, DeviceSpec, Mount};

/// Where NVIDIA's container runtime looks for cards that are named by mounts.
const VOLUME_MOUNTS: &str = "/var/run/nvidia-container-devices";

/// What NVIDIA's container runtime takes for no card at all.
const NO_CARDS: &str = "void";

/// Nodes beside the cards' own; those of them that exist are passed.
pub(crate) const CONTROL_NODES: [&str; 4] =
    ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"];

/// Host paths of a card's daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DaemonPaths {
    /// Where its sockets are.
    pub(crate) pipe: PathBuf,
    /// What its clients see as `/dev/shm`.
    pub(crate) shm: PathBuf,
}

/// What the node contributes to an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    /// The config's wishes.
    pub(crate) plugin: &'a PluginOptions,
    /// Vendor and class of CDI names.
    pub(crate) cdi_kind: &'a str,
    /// Where device nodes are.
    pub(crate) dev_root: &'a Path,
    /// Names of control nodes that exist there.
    pub(crate) control_nodes: &'a [&'a str],
    /// The cards.
    pub(crate) inventory: &'a Inventory,
}

/// The answer for a grant; `daemon` is where the daemon of a shared card is.
pub(crate) fn response(
    grant: &Grant,
    daemon: Option<&DaemonPaths>,
    surroundings: &Surroundings<'_>,
) -> ContainerAllocateResponse {
    let cards: Vec<&Gpu> =
        grant.shares.iter().filter_map(|share| surroundings.inventory.gpu(&share.gpu)).collect();
    let mut answer = ContainerAllocateResponse::default();
    let shared = grant.shares.iter().find(|share| share.mode == Mode::Mps);
    if let Some((share, daemon)) = shared.zip(daemon) {
        join_daemon(&mut answer, share, daemon);
    }
    if let ((Some(share), Some(units)), [card]) = ((shared, grant.memory_units), &*cards) {
        answer.envs.extend(units_as_ack_says_them(share, card, units));
    }
    let uuids = joined(cards.iter().map(|gpu| gpu.uuid.to_string()));
    answer.envs.insert(ENV_CUDA_DEVICES.into(), uuids);
    for strategy in &surroundings.plugin.device_list {
        name_cards(&mut answer, *strategy, &cards, surroundings);
    }
    // Named by CDI alone. Many images say `all`, which NVIDIA's runtime would obey beside it.
    answer.envs.entry(ENV_NVIDIA_DEVICES.to_owned()).or_insert_with(|| NO_CARDS.to_owned());
    if surroundings.plugin.pass_device_specs {
        answer.devices = device_nodes(&cards, surroundings);
    }
    answer
}

/// Makes a container a client of its card's daemon, with the limits of its share. They may only
/// lower the server's default, and device 0 is the only one that the daemon shows
/// (facts/mps.md 2).
fn join_daemon(answer: &mut ContainerAllocateResponse, share: &LiveShare, daemon: &DaemonPaths) {
    // The path in the container is the one of NVIDIA's plugin.
    let pipe = format!("/mps/{}/pipe", share.resource);
    let memory = format!("0={}M", share.share.memory.mib());
    answer.envs.extend([
        (ENV_PIPE_DIRECTORY.to_owned(), pipe.clone()),
        (ENV_MEMORY_LIMIT.to_owned(), memory),
        (ENV_THREAD_PERCENTAGE.to_owned(), share.share.percent.to_string()),
    ]);
    answer.mounts.extend([
        // Clients connect through a read-only mount all the same, and can't remove the sockets.
        mount(&pipe, &daemon.pipe, Access::ReadOnly),
        mount("/dev/shm", &daemon.shm, Access::ReadWrite),
    ]);
}

/// What ACK's device plugin tells a container of its units, `in_all` of which its card has. The
/// kubelet asks for one container at a time and doesn't say whose it is, so that the pod's
/// units are the container's there too (facts/aliyun-gpushare.md 1.4).
fn units_as_ack_says_them(share: &LiveShare, card: &Gpu, in_all: u32) -> [(String, String); 4] {
    let units = share.ids.len();
    [
        (ENV_GPU_MEM_INDEX.to_owned(), card.index.to_string()),
        (ENV_GPU_MEM_POD.to_owned(), units.to_string()),
        (ENV_GPU_MEM_CONTAINER.to_owned(), units.to_string()),
        (ENV_GPU_MEM_DEVICE.to_owned(), in_all.to_string()),
    ]
}

fn name_cards(
    answer: &mut ContainerAllocateResponse,
    strategy: DeviceListStrategy,
    cards: &[&Gpu],
    surroundings: &Surroundings<'_>,
) {
    let names = cards.iter().map(|gpu| name(gpu, surroundings.plugin.device_ids));
    let cdi = |name: String| format!("{}={name}", surroundings.cdi_kind);
    match strategy {
        DeviceListStrategy::Envvar => {
            answer.envs.insert(ENV_NVIDIA_DEVICES.into(), joined(names));
        }
        DeviceListStrategy::VolumeMounts => {
            answer.envs.insert(ENV_NVIDIA_DEVICES.into(), VOLUME_MOUNTS.into());
            answer.mounts.extend(names.map(|name| {
                let path = format!("{VOLUME_MOUNTS}/{name}");
                mount(&path, Path::new("/dev/null"), Access::ReadWrite)
            }));
        }
        DeviceListStrategy::CdiAnnotations => {
            let key = annotation_key(&surroundings.plugin.cdi_annotation_prefix, cards);
            answer.annotations.insert(key, joined(names.map(cdi)));
        }
        DeviceListStrategy::CdiCri => {
            let devices = names.map(|name| CdiDevice { name: cdi(name) });
            answer.cdi_devices.extend(devices);
        }
    }
}

/// A key of its own for every set of cards: of two equal keys in one container the kubelet would
/// drop one at random (facts/kubernetes.md 1.7). At most 63 characters after the prefix.
fn annotation_key(prefix: &str, cards: &[&Gpu]) -> String {
    let first = cards.first().map_or("none", |gpu| gpu.uuid.short());
    format!("{prefix}mpshare_{first}_{}", cards.len())
}

fn name(gpu: &Gpu, strategy: DeviceIdStrategy) -> String {
    match strategy {
        DeviceIdStrategy::Uuid => gpu.uuid.to_string(),
        DeviceIdStrategy::Index => gpu.index.to_string(),
    }
}

fn joined(names: impl Iterator<Item = String>) -> String {
    names.collect::<Vec<_>>().join(",")
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    ReadOnly,
    ReadWrite,
}

fn mount(container: &str, host: &Path, access: Access) -> Mount {
    Mount {
        container_path: container.to_owned(),
        host_path: host.display().to_string(),
        read_only: access == Access::ReadOnly,
    }
}

fn device_nodes(cards: &[&Gpu], surroundings: &Surroundings<'_>) -> Vec<DeviceSpec> {
    let of_cards = cards.iter().map(|gpu| format!("nvidia{}", gpu.minor));
    let shared = surroundings.control_nodes.iter().map(|name| (*name).to_owned());
    // Sorted, and each once.
    let nodes: BTreeMap<String, DeviceSpec> = of_cards
        .chain(shared)
        .map(|name| {
            let spec = DeviceSpec {
                container_path: format!("/dev/{name}"),
                host_path: surroundings.dev_root.join(&name).display().to_string(),
                permissions: "rw".into(),
            };
            (name, spec)
        })
        .collect();
    nodes.into_values().collect()
}

#[cfg(test)]
mod tests;
