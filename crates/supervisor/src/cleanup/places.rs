//! Which cards there is something to clean up for: from directories, processes and the journal.
//!
//! None of these alone is enough: somebody may have removed directories under a living daemon, a
//! card may have been taken out of the machine, and the journal may be damaged.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use mpshare_api::MpsRoot;
use mpshare_core::GpuUuid;
use mpshare_mps::census::MpsProcess;

use crate::card::{CardError, subdirectories};

/// A card and its directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// The card.
    pub gpu: GpuUuid,
    /// Parents of `pipe`, on disk or not.
    pub directories: BTreeSet<PathBuf>,
}

/// Finds the cards. `known` are those that driver, report and journal name; only they and the
/// environment of a daemon tell a card's full name, a directory has its beginning.
pub(super) fn places(
    root: &MpsRoot,
    known: impl Iterator<Item = GpuUuid>,
    processes: &[MpsProcess],
) -> Result<Vec<Place>, CardError> {
    let mut directories = on_disk(root)?;
    let mut devices = Vec::new();
    for process in processes {
        let Some(directory) = directory_of(root, process) else { continue };
        directories.insert(directory);
        devices.extend(process.devices.as_ref().and_then(|devices| devices.parse().ok()));
    }
    let named: BTreeMap<String, GpuUuid> = devices
        .into_iter()
        .chain(known)
        .map(|gpu: GpuUuid| (gpu.short().to_owned(), gpu))
        .collect();
    let mut places: BTreeMap<String, Place> = named
        .into_iter()
        .map(|(short, gpu)| (short, Place { gpu, directories: BTreeSet::new() }))
        .collect();
    for directory in directories {
        let Some(short) = card_name(&directory) else { continue };
        let Ok(gpu) = short.parse() else { continue };
        let place = places
            .entry(short.to_owned())
            .or_insert_with(|| Place { gpu, directories: BTreeSet::new() });
        place.directories.insert(directory);
    }
    Ok(places.into_values().collect())
}

fn on_disk(root: &MpsRoot) -> Result<BTreeSet<PathBuf>, CardError> {
    let mut found = BTreeSet::new();
    for domain in subdirectories(root.path())? {
        for resource in subdirectories(&domain)? {
            found.extend(subdirectories(&resource)?);
        }
    }
    Ok(found)
}

/// The card's directory of a process that was started below the root.
fn directory_of(root: &MpsRoot, process: &MpsProcess) -> Option<PathBuf> {
    let pipe = &process.pipe;
    root.is_pipe_of_card(pipe).then(|| pipe.parent().map(Path::to_owned))?
}

fn card_name(directory: &Path) -> Option<&str> {
    directory.file_name()?.to_str().filter(|name| name.starts_with("GPU-"))
}

#[cfg(test)]
mod tests {
    use mpshare_mps::Pid;
    use mpshare_mps::census::Part;

    use super::*;

    const UUID: &str = "GPU-cb1213a3-d6a4-be7f-0d2c-8b2f6c3c7a11";

    fn process(pipe: &str, devices: Option<&str>) -> MpsProcess {
        MpsProcess {
            pid: Pid::new(7).unwrap(),
            part: Part::Daemon,
            pipe: pipe.into(),
            devices: devices.map(str::to_owned),
        }
    }

    fn found(root: &MpsRoot, known: &[&str], processes: &[MpsProcess]) -> Vec<(String, usize)> {
        let known = known.iter().map(|uuid| uuid.parse().unwrap());
        let places = places(root, known, processes).unwrap();
        places.into_iter().map(|it| (it.gpu.to_string(), it.directories.len())).collect()
    }

    #[test]
    fn a_directory_gets_its_cards_full_name_from_whoever_knows_it() {
        let dir = std::env::temp_dir().join(format!("mpshare-places-{}", std::process::id()));
        let root = MpsRoot::new(&dir);
        let of_card = dir.join("nvidia.com/gpu/GPU-cb1213a3");
        std::fs::create_dir_all(of_card.join("pipe")).unwrap();
        std::fs::create_dir_all(dir.join("nvidia.com/gpu/somebody-elses")).unwrap();
        assert_eq!(found(&root, &[], &[]), [("GPU-cb1213a3".to_owned(), 1)]);
        assert_eq!(found(&root, &[UUID], &[]), [(UUID.to_owned(), 1)]);
        let daemon = process(of_card.join("pipe").to_str().unwrap(), Some(UUID));
        assert_eq!(found(&root, &[], &[daemon]), [(UUID.to_owned(), 1)]);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_daemon_whose_directories_are_gone_is_found_and_one_elsewhere_is_not_ours() {
        let root = MpsRoot::new("/nowhere/mps");
        let lost = process("/nowhere/mps/nvidia.com/gpu/GPU-cb1213a3/pipe", Some(UUID));
        assert_eq!(found(&root, &[], &[lost]), [(UUID.to_owned(), 1)]);
        let foreign = process("/tmp/nvidia-mps", Some(UUID));
        assert_eq!(found(&root, &[], &[foreign]), []);
    }
}
