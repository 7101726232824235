//! The runtime's settings: a file beside the program, so that every node of one machine has its own.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Name of the settings file.
pub const FILE: &str = "nvidia-container-runtime.json";

/// Why there are no settings.
#[derive(Debug, Error)]
pub enum Error {
    /// The file can't be read.
    #[error("settings `{path}` can't be read")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file isn't what is expected.
    #[error("settings `{path}` are damaged")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: serde_json::Error,
    },
}

/// Where the runtime finds what it hands out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The directory that the simulated driver is installed below.
    pub driver_root: PathBuf,
    /// The runtime that does the work; a name is looked up in `PATH`.
    #[serde(default = "runc")]
    pub runc: PathBuf,
    /// The simulator's state on this node.
    #[serde(default = "state_dir")]
    pub state_dir: PathBuf,
    /// Where the node's CDI specifications are.
    #[serde(default = "cdi_dirs")]
    pub cdi_dirs: Vec<PathBuf>,
}

impl Config {
    /// The settings of a node whose driver is installed below `driver_root`.
    pub fn of_driver_root(driver_root: impl Into<PathBuf>) -> Self {
        Self {
            driver_root: driver_root.into(),
            runc: runc(),
            state_dir: state_dir(),
            cdi_dirs: cdi_dirs(),
        }
    }

    /// Reads the settings in directory `dir`.
    pub fn read(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(FILE);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(source) => return Err(Error::Unreadable { path, source }),
        };
        serde_json::from_slice(&text).map_err(|source| Error::Damaged { path, source })
    }
}

fn runc() -> PathBuf {
    PathBuf::from("runc")
}

fn cdi_dirs() -> Vec<PathBuf> {
    ["/etc/cdi", "/run/cdi"].map(PathBuf::from).to_vec()
}

fn state_dir() -> PathBuf {
    PathBuf::from(mpshare_sim_state::DEFAULT_DIR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_root_is_enough() {
        let config: Config =
            serde_json::from_str(r#"{"driverRoot": "/run/nvidia/driver"}"#).unwrap();
        assert_eq!(config, Config::of_driver_root("/run/nvidia/driver"));
    }

    #[test]
    fn a_missing_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = Config::read(dir.path()).unwrap_err();
        assert!(error.to_string().contains(FILE), "{error}");
    }
}
