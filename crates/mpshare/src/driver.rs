//! How the driver and its MPS programs are reached: options of all that works with cards.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mpshare_core::{DriverVersion, VersionProfile};
use mpshare_mps::{ControlDaemon, DaemonSite, Proc, ProcessDaemon};
use mpshare_nvml::ReopeningInventory;
use mpshare_supervisor::Ports;

use crate::launch;

/// For how long a look at the host may take.
const LOOK: Duration = Duration::from_secs(5);

const NVML: &str = "libnvidia-ml.so.1";

#[derive(Debug, clap::Args)]
pub(crate) struct DriverOptions {
    /// The driver library; without it `libnvidia-ml.so.1` below the driver root, or the loader's.
    #[arg(long)]
    nvml_library: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) launch: launch::Options,
    /// Where the cgroups of GPU processes are read: the host's `/proc`.
    #[arg(long, default_value = "/proc")]
    proc_root: PathBuf,
}

impl DriverOptions {
    fn inventory(&self) -> ReopeningInventory {
        let below = self.launch.libraries().into_iter().map(|dir| dir.join(NVML)).collect();
        ReopeningInventory::new(self.nvml_library.clone()).or_first_of(below)
    }

    /// The edges of the world.
    pub(crate) fn ports(&self) -> Ports {
        let (launcher, shared_memory) = self.launch.launcher();
        let place = Arc::clone(&launcher);
        let daemons = move |site: DaemonSite,
                            profile: VersionProfile,
                            driver: Option<&DriverVersion>|
              -> Box<dyn ControlDaemon> {
            let daemon = ProcessDaemon::new(site, Arc::clone(&launcher), profile);
            Box::new(daemon.under_driver(driver))
        };
        Ports {
            inventory: Arc::new(self.inventory()),
            daemons: Arc::new(daemons),
            obstacle: Arc::new(move || place.obstacle(LOOK)),
            shared_memory,
            host_proc: Proc::default(),
            cgroup_proc: Proc::new(&self.proc_root),
        }
    }
}
