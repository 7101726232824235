//! The directories of a card's daemons.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use mpshare_api::{GpuPaths, MpsRoot};

use super::{Card, CardError};

impl Card {
    /// The wanted directory and every other one that this card has, or had under a former plan.
    pub(super) fn directories(
        &self,
        wanted: Option<&GpuPaths>,
    ) -> Result<Vec<GpuPaths>, CardError> {
        let mut found: Vec<GpuPaths> = wanted.cloned().into_iter().collect();
        for domain in subdirectories(self.root.path())? {
            for resource in subdirectories(&domain)? {
                let paths = GpuPaths::at(resource.join(self.gpu.uuid.short()));
                if paths.pipe().is_dir() && !found.contains(&paths) {
                    found.push(paths);
                }
            }
        }
        Ok(found)
    }
}

pub(super) fn make_directories(
    root: &MpsRoot,
    paths: &GpuPaths,
    shm: &Path,
) -> Result<(), CardError> {
    let make = |path: &Path, mode: u32| {
        let made = fs::create_dir_all(path)
            .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)));
        made.map_err(|source| CardError::Directory { path: path.to_owned(), source })
    };
    // Clients of any uid must get through, whatever the umask (bottlerocket-kernel-kit#415).
    for dir in paths.dir().ancestors().take_while(|dir| dir.starts_with(root.path())) {
        make(dir, 0o755)?;
    }
    // A daemon that shares the host's own /dev/shm has no directory of its own for it.
    if shm.starts_with(root.path()) { make(shm, 0o1777) } else { Ok(()) }
}

pub(crate) fn subdirectories(path: &Path) -> Result<Vec<PathBuf>, CardError> {
    let io = |source| CardError::Directory { path: path.to_owned(), source };
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(io(source)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(io)?.path();
        if path.is_dir() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
