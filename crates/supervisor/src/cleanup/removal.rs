//! Removing our files and directories, and nothing else: what isn't known by name stays, and so
//! do the directories that it is in. The root itself may be a mount point, and stays then.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use mpshare_api::{GpuPaths, MpsRoot};
use mpshare_mps::PipeDirectory;

use super::CleanupError;
use crate::card::CardError;

/// Removes a card's directories, and those above them that are empty then.
pub(super) fn remove_card(root: &MpsRoot, directory: &Path) -> Result<(), CardError> {
    let paths = GpuPaths::at(directory);
    let turn = PipeDirectory::new(paths.pipe())?.turn_file();
    for path in [paths.pipe(), paths.log(), paths.shm()] {
        ours_gone(&path, fs::remove_dir_all(&path))?;
    }
    ours_gone(&turn, fs::remove_file(&turn))?;
    let above = directory.ancestors().take_while(|path| *path != root.path());
    for path in above {
        match fs::remove_dir(path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // The card's own directory must go; others may be in use by other cards.
            Err(error) if path != directory && is_in_use(&error) => break,
            Err(source) => {
                return Err(CardError::Directory { path: path.to_owned(), source });
            }
        }
    }
    Ok(())
}

fn ours_gone(path: &Path, removed: io::Result<()>) -> Result<(), CardError> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(CardError::Directory { path: path.to_owned(), source: error })
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn is_in_use(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::ResourceBusy)
}

/// Removes the files of the root, the locks last, and the root. Returns what isn't ours and stays.
pub(super) fn remove_root(root: &MpsRoot) -> Result<Vec<PathBuf>, CleanupError> {
    let documents = [
        root.status(),
        root.allocations(),
        root.holdings(),
        root.plugin_status(),
        root.bound_pods(),
        root.config(),
        root.compute_modes(),
    ];
    let interrupted = interrupted_writes(root, &documents);
    let locks = [root.config_manager_lock(), root.device_plugin_lock(), root.supervisor_lock()];
    for path in documents.into_iter().chain(interrupted).chain(locks) {
        match fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(CleanupError::File { path, source }),
        }
    }
    let left = match fs::remove_dir(root.path()) {
        Ok(()) => Vec::new(),
        Err(_) => entries(root),
    };
    Ok(left)
}

fn entries(root: &MpsRoot) -> Vec<PathBuf> {
    let listed = fs::read_dir(root.path()).into_iter().flatten();
    let mut entries: Vec<_> = listed.filter_map(|entry| Some(entry.ok()?.path())).collect();
    entries.sort();
    entries
}

/// What a process that was killed while it wrote a document has left: `status.json.4711.next`.
fn interrupted_writes(root: &MpsRoot, documents: &[PathBuf]) -> Vec<PathBuf> {
    let is_of = |path: &Path, document: &PathBuf| {
        let rest = path.to_str().zip(document.to_str());
        let rest = rest.and_then(|(path, document)| path.strip_prefix(document));
        let middle = rest.and_then(|rest| rest.strip_prefix('.')?.strip_suffix(".next"));
        middle.is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let mut entries = entries(root);
    entries.retain(|path| documents.iter().any(|document| is_of(path, document)));
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(name: &str) -> MpsRoot {
        let path = std::env::temp_dir().join(format!("mpshare-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        MpsRoot::new(path)
    }

    #[test]
    fn our_files_go_and_what_is_not_ours_stays_and_is_named() {
        let root = root("files");
        let file = |name: &str| root.path().join(name);
        for name in [
            "status.json",
            "holdings.json",
            "bound-pods.json",
            "config.yaml.4711.next",
            "supervisor.lock",
            "config-manager.lock",
        ] {
            fs::write(file(name), "").unwrap();
        }
        for name in ["notes.txt", "status.json.bak", "config.yaml.x.next"] {
            fs::write(file(name), "").unwrap();
        }
        let left = remove_root(&root).unwrap();
        assert_eq!(left, [file("config.yaml.x.next"), file("notes.txt"), file("status.json.bak")]);
        fs::remove_dir_all(root.path()).unwrap();
    }

    #[test]
    fn a_root_with_nothing_else_goes_too_and_a_second_time_is_no_error() {
        let root = root("empty");
        fs::write(root.allocations(), "").unwrap();
        assert!(remove_root(&root).unwrap().is_empty());
        assert!(!root.path().exists());
        assert!(remove_root(&root).unwrap().is_empty());
    }

    #[test]
    fn a_cards_directories_go_with_the_empty_ones_above_them_and_no_further() {
        let root = root("card");
        let card = |name: &str| root.path().join("nvidia.com/gpu").join(name);
        for name in ["GPU-aa", "GPU-bb"] {
            fs::create_dir_all(card(name).join("pipe")).unwrap();
            fs::create_dir_all(card(name).join("shm/left")).unwrap();
            fs::write(card(name).join("pipe.turn"), "").unwrap();
        }
        remove_card(&root, &card("GPU-aa")).unwrap();
        assert!(!card("GPU-aa").exists() && card("GPU-bb").join("shm/left").exists());
        fs::write(card("GPU-bb").join("notes"), "").unwrap();
        assert!(remove_card(&root, &card("GPU-bb")).is_err(), "somebody's file is in it");
        fs::remove_file(card("GPU-bb").join("notes")).unwrap();
        remove_card(&root, &card("GPU-bb")).unwrap();
        assert!(!root.path().join("nvidia.com").exists() && root.path().exists());
        fs::remove_dir_all(root.path()).unwrap();
    }
}
