//! The directory behind the state: locked read-modify-write, replaced by rename.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use thiserror::Error;

use crate::{ProcessKind, SimState, proc_id};

/// The environment variable that names the directory of the simulated node.
pub const SIM_DIR_ENV: &str = "MPSHARE_SIM_DIR";

/// Where the directory is when [`SIM_DIR_ENV`] isn't set.
pub const DEFAULT_DIR: &str = "/run/mpshare-sim";

/// Why the state couldn't be used.
#[derive(Debug, Error)]
pub enum Error {
    /// The directory or a file in it couldn't be read or written.
    #[error("simulated node in `{path}`")]
    Io {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// `state.json` isn't what this version writes.
    #[error("simulated node: `{path}` is damaged")]
    Damaged {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: serde_json::Error,
    },
}

/// A handle on one simulated node. Cheap; opens nothing until used.
#[derive(Debug, Clone)]
pub struct Store {
    dir: PathBuf,
}

impl Store {
    /// A handle on the node in `dir`.
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// The node that the environment names.
    pub fn from_env() -> Self {
        Self::at(std::env::var_os(SIM_DIR_ENV).map_or_else(|| DEFAULT_DIR.into(), PathBuf::from))
    }

    /// Makes the directory with a first state.
    pub fn create(dir: impl Into<PathBuf>, state: &SimState) -> Result<Self, Error> {
        let store = Self::at(dir);
        fs::create_dir_all(&store.dir).map_err(|source| store.io(&store.dir, source))?;
        // Like the device files: a server or a client of any user works on it.
        let open = fs::Permissions::from_mode(0o777);
        fs::set_permissions(&store.dir, open).map_err(|source| store.io(&store.dir, source))?;
        let lock = store.lock()?;
        lock.set_permissions(fs::Permissions::from_mode(0o666))
            .map_err(|source| store.io(&store.dir, source))?;
        store.write(&SimState { pid_namespace: proc_id::own_namespace(), ..state.clone() })?;
        drop(lock);
        Ok(store)
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A consistent copy without processes that have died.
    pub fn read(&self) -> Result<SimState, Error> {
        self.update(|state| state.clone())
    }

    /// Changes the state under the lock and returns what `change` returns.
    pub fn update<T>(&self, change: impl FnOnce(&mut SimState) -> T) -> Result<T, Error> {
        let lock = self.lock()?;
        let before = self.load()?;
        let mut state = before.clone();
        prune_dead(&mut state);
        let result = change(&mut state);
        if state != before {
            self.write(&state)?;
        }
        drop(lock);
        Ok(result)
    }

    fn lock(&self) -> Result<File, Error> {
        let path = self.dir.join("lock");
        let open = || {
            let file = File::options().create(true).append(true).open(&path)?;
            flock(&file, FlockOperation::LockExclusive)?;
            Ok(file)
        };
        open().map_err(|source| self.io(&path, source))
    }

    fn load(&self) -> Result<SimState, Error> {
        let path = self.dir.join("state.json");
        let text = fs::read(&path).map_err(|source| self.io(&path, source))?;
        serde_json::from_slice(&text).map_err(|source| Error::Damaged { path, source })
    }

    fn write(&self, state: &SimState) -> Result<(), Error> {
        let path = self.dir.join("state.json");
        let next = self.dir.join("state.json.next");
        let text = serde_json::to_vec(state)
            .map_err(|source| Error::Damaged { path: path.clone(), source })?;
        fs::write(&next, text)
            .and_then(|()| fs::set_permissions(&next, fs::Permissions::from_mode(0o666)))
            .and_then(|()| fs::rename(&next, &path))
            .map_err(|source| self.io(&path, source))
    }

    #[expect(clippy::unused_self, reason = "reads as the store's own error")]
    fn io(&self, path: &Path, source: io::Error) -> Error {
        Error::Io { path: path.to_path_buf(), source }
    }
}

/// A dead process holds no memory; a dead MPS server is out of FAULT. A reader that doesn't see the
/// host's processes can't tell who is dead and leaves that to others.
fn prune_dead(state: &mut SimState) {
    if !proc_id::sees_host(state.pid_namespace) {
        return;
    }
    state.processes.retain(|process| process.id.is_alive());
    let servers: Vec<i32> = state
        .processes
        .iter()
        .filter(|process| process.kind == ProcessKind::MpsServer)
        .map(|process| process.id.pid)
        .collect();
    state.faults.faulted_servers.retain(|pid| servers.contains(pid));
    state.faults.wedged_servers.retain(|pid| servers.contains(pid));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ProcId, SimProcess};

    fn dead() -> SimProcess {
        SimProcess {
            id: ProcId { pid: 1, start: u64::MAX },
            uid: 0,
            name: "gone".to_owned(),
            gpu: "GPU-0".to_owned(),
            kind: ProcessKind::Plain,
            used_mib: 100,
            limit_mib: None,
            percent_tenths: 1000,
            sticky_error: None,
        }
    }

    #[test]
    fn a_dead_process_frees_its_memory_at_the_next_read() {
        let dir = std::env::temp_dir().join(format!("mpshare-sim-store-{}", std::process::id()));
        let state = SimState { processes: vec![dead()], ..SimState::default() };
        let store = Store::create(&dir, &state).unwrap();
        assert_eq!(store.read().unwrap().processes, []);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_reader_in_another_pid_namespace_takes_nobody_for_dead() {
        let mut state =
            SimState { processes: vec![dead()], pid_namespace: Some(1), ..SimState::default() };
        prune_dead(&mut state);
        assert_eq!(state.processes, [dead()]);
    }
}
