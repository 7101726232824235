//! Reading and writing the JSON documents that processes of a node share.
//!
//! A write goes to a temporary file in the same directory, is synced, and replaces the old file by
//! rename: a writer that is killed at any point, or a full disk, leaves the old document. A read
//! takes a bounded amount of memory and never waits, whatever lies at the path: its callers answer
//! the kubelet on the same thread.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// More than any document of a node: 16 cards with 60 shares each take less than 1 MiB.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// A document that says of which form it is.
pub trait Versioned: DeserializeOwned {
    /// The form that this program knows.
    const VERSION: u32;

    /// The form that the document claims.
    fn version(&self) -> u32;
}

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
    /// Another release wrote it; it counts as absent.
    #[error("document `{path}` has version {found}, not {known}")]
    OtherVersion {
        /// The file.
        path: PathBuf,
        /// What it claims.
        found: u32,
        /// What is known here.
        known: u32,
    },
}

/// Reads a document of the version that is known here; `None` where there is no file.
pub fn read_versioned<T: Versioned>(path: &Path) -> Result<Option<T>, DocumentError> {
    let document = read_document::<T>(path)?;
    match document.as_ref().map(T::version).filter(|found| *found != T::VERSION) {
        None => Ok(document),
        Some(found) => {
            let path = path.to_owned();
            Err(DocumentError::OtherVersion { path, found, known: T::VERSION })
        }
    }
}

/// Reads a document; `None` where there is no file.
pub fn read_document<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, DocumentError> {
    let text = match read_file(path, MAX_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(DocumentError::Io { path: path.to_owned(), source });
        }
    };
    let document = serde_json::from_slice(&text);
    document.map(Some).map_err(|source| DocumentError::Damaged { path: path.to_owned(), source })
}

/// Reads a regular file of at most `limit` bytes.
///
/// Anything else at `path` is an error, as is a larger file: nobody is waited for at the other
/// end of a FIFO, and no memory is taken for what can't be a document.
pub fn read_file(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut content = Vec::new();
    // One byte more than allowed tells a file that is too large from one that just fits.
    let length = file.take(limit.saturating_add(1)).read_to_end(&mut content)?;
    if u64::try_from(length).is_ok_and(|length| length <= limit) {
        return Ok(content);
    }
    Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {limit} bytes")))
}

/// Tells a file from what lies in its place later: its writer sees that somebody else removed,
/// replaced or changed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    file: (u64, u64),
    size: u64,
    changed: (i64, i64),
}

impl FileStamp {
    /// What is at `path` now, following no link; `None` where nothing is.
    pub fn of(path: &Path) -> Option<Self> {
        fs::symlink_metadata(path).ok().map(|meta| Self::from(&meta))
    }
}

impl From<&Metadata> for FileStamp {
    fn from(meta: &Metadata) -> Self {
        Self {
            file: (meta.dev(), meta.ino()),
            size: meta.size(),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// Replaces a document.
pub fn write_document<T: Serialize>(path: &Path, document: &T) -> Result<(), DocumentError> {
    write(path, document, Flush::First)
}

/// Replaces a document that its writer can make anew from elsewhere at any time: nobody waits for
/// the disk, and after a power failure it may be damaged.
pub fn write_derived<T: Serialize>(path: &Path, document: &T) -> Result<(), DocumentError> {
    write(path, document, Flush::Never)
}

fn write<T: Serialize>(path: &Path, document: &T, flush: Flush) -> Result<(), DocumentError> {
    let mut text = serde_json::to_vec_pretty(document)
        .map_err(|source| DocumentError::Damaged { path: path.to_owned(), source })?;
    text.push(b'\n');
    replace(path, &text, flush)
        .map_err(|source| DocumentError::Io { path: path.to_owned(), source })
}

/// Replaces a file by rename after its new content has reached the disk.
pub fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    replace(path, content, Flush::First)
}

/// Whether a file's content has to be on the disk before it has its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flush {
    First,
    Never,
}

fn replace(path: &Path, content: &[u8], flush: Flush) -> io::Result<()> {
    // Supervisor and plugin write under a lock. Two config-managers may overlap for a moment, and
    // in containers have the same PID: what they could mix up is written anew by whichever stays.
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.next", std::process::id()));
    let next = path.with_file_name(name);
    // Nothing that lies there is opened: one at the other end of a FIFO would be waited for, and a
    // link would lead to another file. What can't be removed makes the next step fail.
    drop(fs::remove_file(&next));
    let written = File::create_new(&next)
        .and_then(|mut file| {
            file.write_all(content)?;
            if flush == Flush::First { file.sync_all() } else { Ok(()) }
        })
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
    fn what_is_no_regular_file_of_a_sensible_size_is_an_error_and_is_not_waited_for() {
        let dir = scratch("odd");
        let fifo = dir.join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
        assert!(matches!(read_document::<u32>(&fifo), Err(DocumentError::Io { .. })));
        assert!(read_file(&dir, 10).is_err());
        assert!(read_file(Path::new("/dev/zero"), 10).is_err());
        let file = dir.join("file");
        fs::write(&file, "0123456789").unwrap();
        assert_eq!(read_file(&file, 10).unwrap(), b"0123456789");
        assert_eq!(read_file(&file, 9).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_stamp_tells_a_replaced_or_changed_file() {
        let dir = scratch("stamp");
        let path = dir.join("status.json");
        assert_eq!(FileStamp::of(&path), None);
        write_document(&path, &1).unwrap();
        let first = FileStamp::of(&path);
        assert_eq!(FileStamp::of(&path), first);
        write_document(&path, &2).unwrap();
        assert_ne!(FileStamp::of(&path), first);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn what_lies_in_the_way_of_a_write_is_neither_waited_for_nor_followed() {
        let dir = scratch("in-the-way");
        let path = dir.join("status.json");
        let next = dir.join(format!("status.json.{}.next", std::process::id()));
        rustix::fs::mkfifoat(rustix::fs::CWD, &next, Mode::RUSR | Mode::WUSR).unwrap();
        write_document(&path, &1).unwrap();
        assert_eq!(read_document::<u32>(&path).unwrap(), Some(1));
        let elsewhere = dir.join("elsewhere");
        fs::write(&elsewhere, "kept").unwrap();
        std::os::unix::fs::symlink(&elsewhere, &next).unwrap();
        write_document(&path, &2).unwrap();
        assert_eq!(read_document::<u32>(&path).unwrap(), Some(2));
        assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "kept");
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
