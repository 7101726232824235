//! `compute-modes.json`: the compute modes that were found before they were changed.
//!
//! Written before a mode is set and after it is restored, so that a supervisor that dies in
//! between, or its successor, can put back what was there. NVIDIA's plugin leaves a card in
//! `EXCLUSIVE_PROCESS` when it is killed (facts/nvidia-device-plugin.md 3.5).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;

use mpshare_api::{DocumentError, read_document, write_document};
use mpshare_core::GpuUuid;
use mpshare_nvml::ComputeMode;
use tracing::warn;

/// Names of modes by UUID of the card.
type Modes = BTreeMap<String, String>;

/// The journal of a node; shared by the workers of its cards.
#[derive(Debug)]
pub(crate) struct ModeJournal {
    path: PathBuf,
    modes: Mutex<Modes>,
    /// Whether the file was there and couldn't be read.
    is_damaged: bool,
}

impl ModeJournal {
    /// Opens the journal; a damaged one is empty, with a warning.
    pub(crate) fn open(path: PathBuf) -> Self {
        let (modes, is_damaged) = match read_document(&path) {
            Ok(modes) => (modes.unwrap_or_default(), false),
            Err(error) => {
                warn!(%error, "compute mode journal can't be read, former modes are unknown");
                (BTreeMap::new(), true)
            }
        };
        Self { path, modes: Mutex::new(modes), is_damaged }
    }

    /// A card in `EXCLUSIVE_PROCESS` with a daemon of ours, found by a successor: where the
    /// journal was damaged, the driver's own default is taken for what was there before.
    /// Otherwise the card would stay closed to all but one process for ever.
    pub(crate) fn assume_default(&self, gpu: &GpuUuid) -> Result<(), DocumentError> {
        if self.is_damaged { self.remember(gpu, ComputeMode::Default) } else { Ok(()) }
    }

    /// The mode to restore.
    pub(crate) fn former(&self, gpu: &GpuUuid) -> Option<ComputeMode> {
        let modes = self.lock();
        modes.get(gpu.as_str()).and_then(|name| by_name(name))
    }

    /// The cards with a mode to restore.
    pub(crate) fn gpus(&self) -> Vec<GpuUuid> {
        self.lock().keys().filter_map(|uuid| uuid.parse().ok()).collect()
    }

    /// Remembers the mode that was found, unless one is remembered already.
    pub(crate) fn remember(&self, gpu: &GpuUuid, mode: ComputeMode) -> Result<(), DocumentError> {
        let mut modes = self.lock();
        if modes.contains_key(gpu.as_str()) {
            return Ok(());
        }
        let mut next = modes.clone();
        next.insert(gpu.to_string(), mode.to_string());
        self.replace(&mut modes, next)
    }

    /// Forgets a mode that has been restored.
    pub(crate) fn forget(&self, gpu: &GpuUuid) -> Result<(), DocumentError> {
        let mut modes = self.lock();
        let mut next = modes.clone();
        next.remove(gpu.as_str());
        self.replace(&mut modes, next)
    }

    /// What isn't on the disk counts as not remembered, so that it is tried again.
    fn replace(&self, modes: &mut Modes, next: Modes) -> Result<(), DocumentError> {
        write_document(&self.path, &next)?;
        *modes = next;
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Modes> {
        // A panic while it was held can't leave a map half-changed.
        self.modes.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The names are `nvidia-smi`'s.
fn by_name(name: &str) -> Option<ComputeMode> {
    [ComputeMode::Default, ComputeMode::Prohibited, ComputeMode::ExclusiveProcess]
        .into_iter()
        .find(|mode| mode.to_string() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_mode_found_is_the_one_restored_also_by_a_successor() {
        let dir = std::env::temp_dir().join(format!("mpshare-journal-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("compute-modes.json");
        let gpu: GpuUuid = "GPU-ab".parse().unwrap();
        let journal = ModeJournal::open(path.clone());
        journal.remember(&gpu, ComputeMode::Default).unwrap();
        journal.remember(&gpu, ComputeMode::ExclusiveProcess).unwrap();
        let successor = ModeJournal::open(path.clone());
        assert_eq!(successor.former(&gpu), Some(ComputeMode::Default));
        successor.forget(&gpu).unwrap();
        assert_eq!(ModeJournal::open(path).former(&gpu), None);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_mode_that_did_not_reach_the_disk_is_not_remembered() {
        let dir = std::env::temp_dir().join(format!("mpshare-no-disk-{}", std::process::id()));
        let path = dir.join("compute-modes.json");
        let gpu: GpuUuid = "GPU-ab".parse().unwrap();
        let journal = ModeJournal::open(path.clone());
        assert!(journal.remember(&gpu, ComputeMode::Default).is_err());
        assert_eq!(journal.former(&gpu), None);
        std::fs::create_dir_all(&dir).unwrap();
        journal.remember(&gpu, ComputeMode::Default).unwrap();
        assert_eq!(ModeJournal::open(path).former(&gpu), Some(ComputeMode::Default));
        std::fs::remove_dir_all(dir).unwrap();
    }
}
