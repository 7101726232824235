//! The files of the simulated driver: where they lie below a driver root, which capability brings
//! them into a container, and where they lie there.

use std::path::{Path, PathBuf};

use mpshare_sim_state::SimGpu;
use mpshare_sim_state::nodes::{CONTROL_NODE, UVM_NODE, gpu_node};
use mpshare_sim_state::proc_id::HOST_PROC;

/// A group of driver files that a container asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Capability {
    /// CUDA and MPS.
    Compute,
    /// NVML and `nvidia-smi`.
    Utility,
}

/// One file of the driver.
#[derive(Debug, Clone, Copy)]
pub struct DriverFile {
    /// What brings it into a container.
    pub capability: Capability,
    /// Its name, on a host and in a container.
    pub name: &'static str,
    /// Its directory, on a host below the driver root and in a container.
    pub dir: Directory,
}

/// A directory of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Directory {
    /// `usr/bin`.
    Programs,
    /// `usr/lib/<architecture>-linux-gnu`, where Debian's loader looks without being told.
    Libraries,
}

impl Directory {
    /// The path, without a leading slash.
    pub fn path(self) -> PathBuf {
        match self {
            Self::Programs => PathBuf::from("usr/bin"),
            Self::Libraries => format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH).into(),
        }
    }
}

impl DriverFile {
    /// The path, without a leading slash: below the driver root and below a container's root.
    pub fn path(self) -> PathBuf {
        self.dir.path().join(self.name)
    }
}

/// NVML: without it there is no driver.
pub const NVML: DriverFile = library(Capability::Utility, "libnvidia-ml.so.1");

/// Everything that the simulated driver consists of, but for device nodes.
pub const FILES: [DriverFile; 5] = [
    NVML,
    library(Capability::Compute, "libcuda.so.1"),
    program(Capability::Utility, "nvidia-smi"),
    program(Capability::Compute, "nvidia-cuda-mps-control"),
    program(Capability::Compute, "nvidia-cuda-mps-server"),
];

const fn library(capability: Capability, name: &'static str) -> DriverFile {
    DriverFile { capability, name, dir: Directory::Libraries }
}

const fn program(capability: Capability, name: &'static str) -> DriverFile {
    DriverFile { capability, name, dir: Directory::Programs }
}

/// Names of the device nodes below `dev` that every container with a driver gets.
pub const CONTROL_NODES: [&str; 2] = [CONTROL_NODE, UVM_NODE];

/// A bind mount into a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// On the node.
    pub source: PathBuf,
    /// In the container.
    pub destination: PathBuf,
    /// How.
    pub access: Access,
}

/// What a container may do with a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read and execute.
    ReadOnly,
    /// Write, too.
    ReadWrite,
}

impl Access {
    /// The options of the bind mount.
    pub fn options(self) -> [&'static str; 4] {
        match self {
            Self::ReadOnly => ["bind", "ro", "nosuid", "nodev"],
            Self::ReadWrite => ["bind", "rw", "nosuid", "nodev"],
        }
    }
}

/// The driver files of `capabilities` that exist below `driver_root`, as mounts.
pub fn file_mounts(driver_root: &Path, capabilities: &[Capability]) -> Vec<Mount> {
    let wanted = FILES.iter().filter(|file| capabilities.contains(&file.capability));
    wanted
        .map(|file| Mount {
            source: driver_root.join(file.path()),
            destination: Path::new("/").join(file.path()),
            access: Access::ReadOnly,
        })
        .filter(|mount| mount.source.exists())
        .collect()
}

/// What every container with a driver has: the state directory and the host's processes, which stand
/// for the kernel module, and the device nodes that aren't of one card.
pub fn control_mounts(driver_root: &Path, state_dir: &Path) -> Vec<Mount> {
    let state = Mount {
        source: state_dir.to_path_buf(),
        destination: PathBuf::from(mpshare_sim_state::DEFAULT_DIR),
        access: Access::ReadWrite,
    };
    let processes = Mount {
        source: PathBuf::from("/proc"),
        destination: PathBuf::from(HOST_PROC),
        access: Access::ReadOnly,
    };
    let nodes = CONTROL_NODES.iter().map(|name| node_mount(driver_root, name));
    [state, processes].into_iter().chain(nodes).collect()
}

/// The device node of a card.
pub fn gpu_mount(driver_root: &Path, gpu: &SimGpu) -> Mount {
    node_mount(driver_root, &gpu_node(gpu.minor))
}

fn node_mount(driver_root: &Path, name: &str) -> Mount {
    Mount {
        source: driver_root.join("dev").join(name),
        destination: Path::new("/dev").join(name),
        access: Access::ReadWrite,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_brings_its_own_files_only() {
        let root = tempfile::tempdir().unwrap();
        for file in FILES {
            let path = root.path().join(file.path());
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let names = |capabilities: &[Capability]| -> Vec<String> {
            let mounts = file_mounts(root.path(), capabilities);
            let name = |mount: &Mount| mount.destination.file_name().unwrap().to_owned();
            mounts.iter().map(|mount| name(mount).into_string().unwrap()).collect()
        };
        assert_eq!(names(&[Capability::Utility]), ["libnvidia-ml.so.1", "nvidia-smi"]);
        let compute = ["libcuda.so.1", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server"];
        assert_eq!(names(&[Capability::Compute]), compute);
        assert_eq!(names(&[]), Vec::<String>::new());
    }
}
