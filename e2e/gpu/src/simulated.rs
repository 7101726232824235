//! The simulated driver, laid out where a real one would be and named by the environment: the one
//! place that knows of it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use mpshare_sim_state::shm::SHM_ENV;
use mpshare_sim_state::{SIM_DIR_ENV, SimGpu, SimState, Store};

const PROGRAMS: [&str; 2] = ["nvidia-cuda-mps-control", "nvidia-cuda-mps-server"];

/// Libraries: as built, as loaded.
const LIBRARIES: [(&str, &str); 2] =
    [("libnvidia_ml_sim.so", "libnvidia-ml.so.1"), ("libcuda_sim.so", "libcuda.so.1")];

/// A simulated driver.
pub(crate) struct Simulated {
    /// What names it.
    pub(crate) environment: BTreeMap<&'static str, OsString>,
    /// What stands in for `/proc` where cgroups are read.
    pub(crate) proc_root: PathBuf,
}

impl Simulated {
    /// Lays one out below `root`, of what was built: a T4 and a V100.
    pub(crate) fn lay_out(
        root: &Path,
        built: &Path,
        driver: &str,
        faults: Option<&str>,
    ) -> Result<Self> {
        let path = |name: &str| root.join("driver").join(name);
        for directory in ["bin", "lib", "shm", "proc"] {
            fs::create_dir_all(path(directory))?;
        }
        for program in PROGRAMS {
            link(&built.join(program), &path("bin").join(program))?;
        }
        for (file, name) in LIBRARIES {
            link(&built.join(file), &path("lib").join(name))?;
        }
        let mut state = SimState::default();
        if let Some(faults) = faults {
            state.faults = serde_json::from_str(faults).context("no faults")?;
        }
        driver.clone_into(&mut state.driver.version);
        for (index, model) in (0..).zip(["t4", "v100"]) {
            // Of nobody else's simulated node: daemons of one card get into each other's way.
            let uuid = format!("GPU-{:08x}-5171-4000-8000-00000000000{index}", token(index));
            state.gpus.push(SimGpu::of_model(model, index, &uuid).context("no such model")?);
        }
        let store = Store::create(path("sim"), &state)?;
        let system = std::env::var_os("PATH").unwrap_or_default();
        let mut programs = path("bin").into_os_string();
        programs.push(":");
        programs.push(system);
        let environment = BTreeMap::from([
            ("PATH", programs),
            ("LD_LIBRARY_PATH", path("lib").into_os_string()),
            (SIM_DIR_ENV, store.dir().into()),
            (SHM_ENV, path("shm").into_os_string()),
        ]);
        Ok(Self { environment, proc_root: path("proc") })
    }
}

fn token(index: u32) -> u32 {
    std::process::id().wrapping_mul(2) ^ index
}

fn link(from: &Path, to: &Path) -> Result<()> {
    let hint = "hint: run `cargo xtask gpu --simulator`, which builds it";
    ensure!(from.is_file(), "`{}` isn't built; {hint}", from.display());
    Ok(symlink(from, to)?)
}
