//! Reading and writing the JSON documents that processes of a node share.
//!
//! A write goes to a temporary file in the same directory, is synced, and replaces the old file by
//! rename: a writer that is killed at any point, or a full disk, leaves the old document.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// Why a shared document couldn't be used.
#[derive(Debug, Error)]
pub enum DocumentError {
    /// It couldn't be read or written.
    #[error("document `{path}`")]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// It isn't what its writer writes; it counts as absent.
    #[error("document `{path}` is damaged")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: serde_json::Error,
    },
}

/// Reads a document; `None` where there is no file.
pub fn read_document<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, DocumentError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(DocumentError::Io { path: path.to_owned(), source });
        }
    };
    let document = serde_json::from_slice(&text);
    document.map(Some).map_err(|source| DocumentError::Damaged { path: path.to_owned(), source })
}

/// Replaces a document.
pub fn write_document<T: Serialize>(path: &Path, document: &T) -> Result<(), DocumentError> {
    let mut text = serde_json::to_vec_pretty(document)
        .map_err(|source| DocumentError::Damaged { path: path.to_owned(), source })?;
    text.push(b'\n');
    replace_file(path, &text).map_err(|source| DocumentError::Io { path: path.to_owned(), source })
}

/// Replaces a file by rename after its new content has reached the disk.
pub fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    // The PID keeps two writers apart that shouldn't both be there (an upgrade that overlaps).
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.next", std::process::id()));
    let next = path.with_file_name(name);
    let written = File::create(&next)
        .and_then(|mut file| file.write_all(content).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&next, path));
    if written.is_err() {
        // Best effort: the error that matters is the first one.
        drop(fs::remove_file(&next));
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir =
            std::env::temp_dir().join(format!("mpshare-document-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn an_absent_document_is_none_and_a_damaged_one_an_error_that_names_it() {
        let dir = scratch("damaged");
        let path = dir.join("status.json");
        assert!(read_document::<u32>(&path).unwrap().is_none());
        fs::write(&path, "{ tru").unwrap();
        let error = read_document::<u32>(&path).unwrap_err();
        assert!(matches!(&error, DocumentError::Damaged { path: named, .. } if *named == path));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_failed_write_leaves_the_old_document_and_no_rest() {
        let dir = scratch("failed");
        let path = dir.join("status.json");
        write_document(&path, &1).unwrap();
        // A directory in the way of the temporary file: creating it fails as a full disk would.
        let next = dir.join(format!("status.json.{}.next", std::process::id()));
        fs::create_dir(&next).unwrap();
        assert!(write_document(&path, &2).is_err());
        assert_eq!(read_document::<u32>(&path).unwrap(), Some(1));
        fs::remove_dir_all(dir).unwrap();
    }
}
