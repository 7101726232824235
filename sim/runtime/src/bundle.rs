//! A bundle's `config.json`: read, and replaced in one step.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;
use thiserror::Error;

/// Why a bundle couldn't be changed.
#[derive(Debug, Error)]
pub(crate) enum Error {
    /// The file can't be read.
    #[error("bundle: `{path}` can't be read")]
    Unreadable { path: PathBuf, source: io::Error },
    /// The file isn't JSON.
    #[error("bundle: `{path}` is damaged")]
    Damaged { path: PathBuf, source: serde_json::Error },
    /// The file can't be replaced.
    #[error("bundle: `{path}` can't be written")]
    Unwritable { path: PathBuf, source: io::Error },
}

/// The container's specification.
pub(crate) fn read(bundle: &Path) -> Result<Value, Error> {
    let path = bundle.join("config.json");
    match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).map_err(|source| Error::Damaged { path, source }),
        Err(source) => Err(Error::Unreadable { path, source }),
    }
}

/// Puts a specification in the place of the one that is there, with its permissions.
pub(crate) fn replace(bundle: &Path, specification: &Value) -> Result<(), Error> {
    let path = bundle.join("config.json");
    let next = bundle.join("config.json.next");
    let write = || {
        fs::write(&next, serde_json::to_vec(specification)?)?;
        fs::set_permissions(&next, fs::metadata(&path)?.permissions())?;
        fs::rename(&next, &path)
    };
    write().map_err(|source| Error::Unwritable { path: path.clone(), source })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_replaced_specification_keeps_what_nobody_changed() {
        let bundle = tempfile::tempdir().unwrap();
        let before = json!({ "process": { "oomScoreAdj": -997 }, "big": u64::MAX, "other": [1.5] });
        fs::write(bundle.path().join("config.json"), before.to_string()).unwrap();
        let mut specification = read(bundle.path()).unwrap();
        specification["mounts"] = json!([]);
        replace(bundle.path(), &specification).unwrap();
        let mut after = read(bundle.path()).unwrap();
        after.as_object_mut().unwrap().remove("mounts");
        assert_eq!(after, before);
    }
}
