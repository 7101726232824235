//! Where MPS daemons are launched, and what they find there.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use mpshare_api::SharedMemory;
use mpshare_mps::{CanaryProgram, HostEntry, Launcher, OnHost, OwnSession, Programs};

/// Where libraries are below a driver root.
const LIBRARIES: [&str; 4] =
    ["usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib"];

/// This very program, also when its file has been replaced by an upgrade.
const SELF: &str = "/proc/self/exe";

/// The cgroup below which each card's daemon has its own.
pub(crate) const CGROUP: &str = "mpshare";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Where MPS daemons run: `here`, beside this process, or on the `host`, when this process is
    /// in a container that they must outlive (needs a privileged pod with `hostPID`).
    #[arg(long, value_enum, default_value_t = Place::Here)]
    launch: Place,
    /// The host's mount namespace.
    #[arg(long, default_value = "/proc/1/ns/mnt")]
    host_mount_namespace: PathBuf,
    /// Where the driver is installed: `/`, or for a driver container `/run/nvidia/driver`.
    #[arg(long, env = "NVIDIA_DRIVER_ROOT", default_value = "/")]
    driver_root: PathBuf,
    /// The directory of `nvidia-cuda-mps-control` and `nvidia-cuda-mps-server`; without it
    /// `usr/bin` below the driver root, or `PATH` where that is `/`.
    #[arg(long)]
    mps_programs: Option<PathBuf>,
    /// The CUDA driver library, by which it is tried whether MPS servers take clients; without it
    /// `libcuda.so.1` below the driver root, or the loader's.
    #[arg(long)]
    cuda_library: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Place {
    Here,
    Host,
}

impl Options {
    /// The mount namespace in which daemons are launched; `None` for this process's own.
    pub(crate) fn host_mount_namespace(&self) -> Option<&Path> {
        match self.launch {
            Place::Here => None,
            Place::Host => Some(&self.host_mount_namespace),
        }
    }

    /// The launcher, and what its daemons have at `/dev/shm`.
    pub(crate) fn launcher(&self) -> (Arc<dyn Launcher>, SharedMemory) {
        match self.launch {
            Place::Here => (Arc::new(OwnSession::new(self.programs())), SharedMemory::Host),
            Place::Host => {
                (Arc::new(OnHost::new(self.programs(), self.entry())), SharedMemory::PerCard)
            }
        }
    }

    fn entry(&self) -> HostEntry {
        HostEntry {
            program: SELF.into(),
            arguments: vec!["host-exec".into()],
            look: vec!["host-look".into()],
            mount_namespace: self.host_mount_namespace.clone(),
            cgroup: CGROUP.into(),
        }
    }

    fn programs(&self) -> Programs {
        let below = self.own_root().map(|root| root.join("usr/bin"));
        Programs {
            directory: self.mps_programs.clone().or(below),
            libraries: self.libraries(),
            canary: Some(self.canary()),
        }
    }

    fn canary(&self) -> CanaryProgram {
        let below = self.libraries().into_iter().map(|dir| dir.join(mpshare_cuda::LIBRARY));
        let libraries = self.cuda_library.clone().map_or_else(|| below.collect(), |it| vec![it]);
        let option = |path: PathBuf| ["--cuda-library".into(), OsString::from(path)];
        let options = libraries.into_iter().flat_map(option);
        CanaryProgram {
            program: SELF.into(),
            arguments: [OsString::from("mps-canary")].into_iter().chain(options).collect(),
        }
    }

    /// Where the driver's libraries are; empty where the loader knows.
    pub(crate) fn libraries(&self) -> Vec<PathBuf> {
        let directories = |root: &Path| LIBRARIES.map(|dir| root.join(dir)).into();
        self.own_root().map_or_else(Vec::new, directories)
    }

    /// The driver root, where that isn't the node's own.
    fn own_root(&self) -> Option<&Path> {
        Some(self.driver_root.as_path()).filter(|root| *root != Path::new("/"))
    }
}
