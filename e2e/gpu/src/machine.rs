//! Whether checks can be tried on this machine, and on which card.

use std::path::Path;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use anyhow::Result;
use mpshare_core::{ComputeCapability, Gpu, Inventory, MigMode, VersionProfile};
use mpshare_mps::{Launcher as _, OwnSession, Pid};
use mpshare_nvml::{ComputeMode, GpuInventory as _, NvmlError, NvmlInventory};

use crate::cgroups::Cgroups;
use crate::marked::described;
use crate::report::Machine;
use crate::rig::Rig;
use crate::worker::Options;

/// What was found.
pub(crate) enum Look {
    /// A card that can be tried.
    Ready(Box<Rig>, Machine),
    /// There is nothing to try; why.
    Nothing(String),
    /// It must not be tried; why.
    Refused(String),
}

/// Looks, and changes nothing.
pub(crate) fn look(options: &Options) -> Result<Look> {
    let nothing = |why: &str| Ok(Look::Nothing(format!("no GPU: {why}")));
    let nvml = match NvmlInventory::open(None) {
        Ok(nvml) => nvml,
        Err(error) if error.is_driver_away() => return nothing(&error.to_string()),
        Err(error) => return Err(error.into()),
    };
    let inventory = nvml.inventory()?;
    if inventory.gpus.is_empty() {
        return nothing("the driver has no card");
    }
    if let Some(obstacle) = OwnSession::default().obstacle(Duration::from_secs(5)) {
        return nothing(&format!("{obstacle}, so that there is no MPS"));
    }
    let Some(profile) = VersionProfile::of(&inventory.driver) else {
        return nothing(&format!("driver {} is older than 535", inventory.driver));
    };
    let Some(gpu) = choose(&inventory, options.gpu.as_deref()) else {
        return nothing("no card of this name, or none of Volta or later without MIG");
    };
    let mode = nvml.compute_mode(&gpu.uuid)?;
    if let Some(why) = refusal(&nvml, gpu, mode)? {
        return Ok(Look::Refused(why));
    }
    let machine = described_machine(&inventory, gpu, mode);
    let is_free = |other: &&Gpu| users(&nvml, other).is_ok_and(|users| users.is_empty());
    let others = inventory.gpus.iter().filter(|other| other.uuid != gpu.uuid && usable(other));
    let second = others.clone().find(is_free).cloned();
    let gpu = gpu.clone();
    let rig = Rig {
        root: options.root.clone(),
        nvml,
        gpu,
        second,
        profile,
        mode,
        cgroups: options.proc_root.clone().map_or(Cgroups::Made, Cgroups::Told),
        mpshare: options.mpshare.clone(),
        daemons: AtomicU32::new(0),
    };
    Ok(Look::Ready(Box::new(rig), machine))
}

fn usable(gpu: &Gpu) -> bool {
    gpu.mig != MigMode::Enabled && gpu.compute_capability >= ComputeCapability::VOLTA
}

fn choose<'a>(inventory: &'a Inventory, name: Option<&str>) -> Option<&'a Gpu> {
    let is_meant = |gpu: &&Gpu| name.is_none_or(|name| gpu.uuid.as_str().starts_with(name));
    inventory.gpus.iter().filter(is_meant).find(|gpu| usable(gpu))
}

/// Why this card is left alone: somebody uses it, or it isn't ours to change.
fn refusal(nvml: &NvmlInventory, gpu: &Gpu, mode: Option<ComputeMode>) -> Result<Option<String>> {
    let users = users(nvml, gpu)?;
    if !users.is_empty() {
        let users: Vec<_> = users.into_iter().map(described).collect();
        let uuid = &gpu.uuid;
        return Ok(Some(format!(
            "GPU `{uuid}` has other compute processes: {}; hint: end them, or name another card with `--gpu`",
            users.join(", ")
        )));
    }
    if mode == Some(ComputeMode::Prohibited) {
        return Ok(Some(format!("GPU `{}` is in compute mode PROHIBITED", gpu.uuid)));
    }
    // Setting what is set changes nothing, and tells whether it may be changed.
    match mode.map(|mode| nvml.set_compute_mode(&gpu.uuid, mode)) {
        None | Some(Ok(())) => Ok(None),
        Some(Err(error @ NvmlError::NoPermission { .. })) => Ok(Some(error.to_string())),
        Some(Err(error)) => Err(error.into()),
    }
}

fn users(nvml: &NvmlInventory, gpu: &Gpu) -> Result<Vec<Pid>> {
    let mut all = nvml.compute_processes(&gpu.uuid)?;
    all.extend(nvml.mps_processes(&gpu.uuid)?);
    let mut pids: Vec<Pid> = all.iter().filter_map(|process| Pid::new(process.pid)).collect();
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}

fn described_machine(inventory: &Inventory, gpu: &Gpu, mode: Option<ComputeMode>) -> Machine {
    Machine {
        driver: inventory.driver.to_string(),
        gpu: gpu.model.clone(),
        uuid: gpu.uuid.to_string(),
        memory_mib: gpu.memory.mib(),
        compute_capability: gpu.compute_capability.to_string(),
        compute_mode: mode.map(|mode| mode.to_string()),
        cards: inventory.gpus.len(),
    }
}

/// Whether the directory is one that a run made.
pub(crate) fn is_root(root: &Path) -> bool {
    root.is_absolute() && root.is_dir()
}
