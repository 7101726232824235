//! Where the files are, and who may write each.
//!
//! | path below the root | writer |
//! |---|---|
//! | `config.yaml`, `bound-pods.json`, `config-manager.lock` | config-manager |
//! | `status.json`, `compute-modes.json`, `supervisor.lock` | supervisor |
//! | `allocations.json`, `holdings.json`, `device-plugin.json`, `device-plugin.lock` | device plugin |
//! | `<resource>/<gpu>/{pipe,log,shm}` | supervisor, and NVIDIA's daemon that it starts there |

use std::path::{Path, PathBuf};

use mpshare_core::{GpuUuid, ResourceName};

/// The directory below which everything of a node lies; a host path.
///
/// Never NVIDIA's default `/tmp/nvidia-mps`: its container runtime mounts that into every GPU
/// container (facts/mps.md 3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MpsRoot(PathBuf);

impl MpsRoot {
    /// Where the root is unless told otherwise.
    pub const DEFAULT: &str = "/run/nvidia/mps";

    /// A root in `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The config in force, see [`crate::ChosenConfig`].
    pub fn config(&self) -> PathBuf {
        self.0.join("config.yaml")
    }

    /// What the supervisor reports, see [`crate::NodeStatus`].
    pub fn status(&self) -> PathBuf {
        self.0.join("status.json")
    }

    /// What each device id stands for, see [`crate::Allocations`].
    pub fn allocations(&self) -> PathBuf {
        self.0.join("allocations.json")
    }

    /// What pods of the node ask for, see [`crate::BoundPods`].
    pub fn bound_pods(&self) -> PathBuf {
        self.0.join("bound-pods.json")
    }

    /// What their containers have, see [`crate::Holdings`].
    pub fn holdings(&self) -> PathBuf {
        self.0.join("holdings.json")
    }

    /// What keeps the device plugin from serving, see [`crate::PluginStatus`].
    pub fn plugin_status(&self) -> PathBuf {
        self.0.join("device-plugin.json")
    }

    /// Held by the one supervisor of the node for as long as it runs.
    pub fn supervisor_lock(&self) -> PathBuf {
        self.0.join("supervisor.lock")
    }

    /// Held by the one device plugin of the node for as long as it runs.
    pub fn device_plugin_lock(&self) -> PathBuf {
        self.0.join("device-plugin.lock")
    }

    /// Held by the one config-manager of the node for as long as it runs.
    pub fn config_manager_lock(&self) -> PathBuf {
        self.0.join("config-manager.lock")
    }

    /// The compute modes that were found before they were changed.
    pub fn compute_modes(&self) -> PathBuf {
        self.0.join("compute-modes.json")
    }

    /// The directories of one card's daemon.
    pub fn gpu(&self, resource: &ResourceName, gpu: &GpuUuid) -> GpuPaths {
        GpuPaths { dir: self.0.join(resource.as_str()).join(gpu.short()) }
    }

    /// Whether this is the path of a card's pipe directory, of whatever resource.
    pub fn is_pipe_of_card(&self, path: &Path) -> bool {
        let below = path.strip_prefix(&self.0);
        below.is_ok_and(|below| below.components().count() == 4 && below.ends_with("pipe"))
    }
}

/// The directories of one card's daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuPaths {
    dir: PathBuf,
}

impl GpuPaths {
    /// The directories below a card's directory that was found on disk.
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// The card's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// `CUDA_MPS_PIPE_DIRECTORY`; at most 87 bytes long (facts/mps.md 1.1).
    pub fn pipe(&self) -> PathBuf {
        self.dir.join("pipe")
    }

    /// `CUDA_MPS_LOG_DIRECTORY`.
    pub fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// What the card's clients and servers see as `/dev/shm`.
    pub fn shm(&self) -> PathBuf {
        self.dir.join("shm")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_default_pipe_directory_fits_a_socket_address() {
        let resource = format!("nvidia.com/{}", "g".repeat(34)).parse().unwrap();
        let uuid = "GPU-cb1213a3-d6a4-be7f-0d2c-8b2f6c3c7a11".parse().unwrap();
        let pipe = MpsRoot::new(MpsRoot::DEFAULT).gpu(&resource, &uuid).pipe();
        assert_eq!(pipe.as_os_str().len(), 79);
    }
}
