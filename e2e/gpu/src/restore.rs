//! Putting everything back: clients and daemons of a run end, the compute mode is what it was.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use mpshare_core::{GpuUuid, VersionProfile};
use mpshare_mps::census::{Part, mps_processes};
use mpshare_mps::procfs::Proc;
use mpshare_mps::{ControlDaemon as _, DaemonSite, OwnSession, PipeDirectory, ProcessDaemon};
use mpshare_nvml::{ComputeMode, GpuInventory as _, NvmlInventory};
use serde::{Deserialize, Serialize};

use crate::{cgroups, marked};

/// For how long killed processes may take to be gone.
const ENDING: Duration = Duration::from_secs(5);

/// What was found on the machine, written before anything is changed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Found {
    /// The card.
    pub(crate) gpu: String,
    /// Its compute mode as `nvidia-smi` takes it.
    pub(crate) mode: Option<String>,
}

impl Found {
    /// Keeps it for whoever puts things back.
    pub(crate) fn write(&self, root: &Path) -> Result<()> {
        Ok(fs::write(path(root), serde_json::to_string(self)?)?)
    }

    fn read(root: &Path) -> Result<Option<Self>> {
        match fs::read_to_string(path(root)) {
            Ok(text) => Ok(Some(serde_json::from_str(&text)?)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn path(root: &Path) -> PathBuf {
    root.join("found.json")
}

/// Puts everything back and says on stdout, as a list, what was still there.
pub(crate) fn run(root: &Path, files: Files) -> Result<()> {
    let mut left = processes(root);
    if let Some(found) = Found::read(root)? {
        left.extend(compute_mode(&found)?);
    }
    if files == Files::Remove {
        fs::remove_dir_all(root)?;
    }
    println!("{}", serde_json::to_string(&left)?);
    Ok(())
}

/// What becomes of the run's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Files {
    /// It stays; it is somebody's to remove.
    Keep,
    /// It is removed.
    Remove,
}

/// Ends all processes of the run and removes its cgroups; who was still there.
pub(crate) fn processes(root: &Path) -> Vec<String> {
    let is_mps = |handle: &mpshare_mps::ProcessHandle| {
        let name = Proc::default().program(handle.id().pid).ok().flatten().unwrap_or_default();
        name.to_string_lossy().starts_with("nvidia-cuda-mps")
    };
    let (mps, others): (Vec<_>, Vec<_>) = marked::processes(root).into_iter().partition(is_mps);
    let left: Vec<_> =
        mps.iter().chain(&others).map(|handle| marked::described(handle.id().pid)).collect();
    marked::kill(&others, ENDING);
    if !mps.is_empty() {
        daemons(root);
    }
    for _ in 0..3 {
        // Twice and more, because one that is being looked at may start another.
        let rest = marked::processes(root);
        if rest.is_empty() {
            break;
        }
        marked::kill(&rest, ENDING);
    }
    cgroups::remove();
    left
}

/// Has the daemons below a directory quit; those that don't are killed.
pub(crate) fn daemons(below: &Path) {
    let all = mps_processes(&Proc::default()).unwrap_or_default();
    for process in all {
        if process.part != Part::Daemon || !process.pipe.starts_with(below) {
            continue;
        }
        let Some(daemon) = daemon(&process.pipe, process.devices.as_deref()) else {
            continue;
        };
        if daemon.quit(Duration::from_secs(2)).is_err() {
            // Whoever is still there is killed by its mark.
            drop(daemon.kill());
        }
    }
}

fn daemon(pipe: &Path, devices: Option<&str>) -> Option<ProcessDaemon> {
    let directory = pipe.parent()?;
    let gpu: GpuUuid = devices?.parse().ok()?;
    let (log, shm) = (directory.join("log"), directory.join("shm"));
    let site = DaemonSite { gpu, pipe: PipeDirectory::new(pipe).ok()?, log, shm };
    let launcher = Arc::new(OwnSession::default());
    Some(ProcessDaemon::new(site, launcher, VersionProfile::R535))
}

/// Restores the compute mode; a line when it was another one.
fn compute_mode(found: &Found) -> Result<Option<String>> {
    let Some(before) = found.mode.as_deref().and_then(mode) else {
        return Ok(None);
    };
    let nvml = NvmlInventory::open(None)?;
    let gpu: GpuUuid = found.gpu.parse()?;
    let now = nvml.compute_mode(&gpu)?;
    if now == Some(before) {
        return Ok(None);
    }
    nvml.set_compute_mode(&gpu, before).context("the compute mode can't be restored")?;
    Ok(now.map(|now| format!("compute mode {now}, restored to {before}")))
}

fn mode(name: &str) -> Option<ComputeMode> {
    let all = [ComputeMode::Default, ComputeMode::ExclusiveProcess, ComputeMode::Prohibited];
    all.into_iter().find(|mode| mode.to_string() == name)
}
