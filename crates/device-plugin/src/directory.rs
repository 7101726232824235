//! A directory that is watched for as long as the role runs, through deletion and recreation.
//!
//! inotify makes it quick; a look at fixed intervals makes it certain.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt;
use inotify::{EventMask, EventStream, Inotify, WatchMask};

use crate::problem::Failures;

/// Room for a burst of events; longer ones come in the next read.
const BUFFER_BYTES: usize = 4096;

/// A directory to watch.
#[derive(Debug, Clone)]
pub(crate) struct Directory {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// What to do while it isn't there.
    pub(crate) if_missing: IfMissing,
    /// Which changes of its files count.
    pub(crate) mask: WatchMask,
    /// Which names count.
    pub(crate) is_of_interest: fn(&OsStr) -> bool,
    /// How often to look in any case.
    pub(crate) recheck: Duration,
}

/// What to do while a directory isn't there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfMissing {
    /// Make it: it is ours.
    Create,
    /// Wait for its owner.
    Wait,
}

impl Directory {
    /// Calls `on_change` at once, after each change, and at fixed intervals; never returns.
    pub(crate) async fn follow(&self, mut on_change: impl FnMut()) {
        let mut failures = Failures::new("directory can't be watched");
        loop {
            match self.open() {
                Ok((stream, identity)) => {
                    failures.over();
                    on_change();
                    self.follow_one(stream, identity, &mut on_change).await;
                    failures.failed(&format!("`{}` was taken away", self.path.display()));
                }
                Err(error) => {
                    failures.failed(&format!("`{}`: {error}", self.path.display()));
                    on_change();
                    tokio::time::sleep(self.recheck.min(Duration::from_secs(1))).await;
                }
            }
        }
    }

    fn open(&self) -> io::Result<(EventStream<Vec<u8>>, Identity)> {
        if self.if_missing == IfMissing::Create {
            std::fs::create_dir_all(&self.path)?;
        }
        let inotify = Inotify::init()?;
        let itself = WatchMask::DELETE_SELF | WatchMask::MOVE_SELF | WatchMask::ONLYDIR;
        inotify.watches().add(&self.path, self.mask | itself)?;
        let identity = identity(&self.path)?;
        let stream = inotify.into_event_stream(vec![0; BUFFER_BYTES])?;
        Ok((stream, identity))
    }

    /// Returns when the directory isn't the one that was opened any more.
    async fn follow_one(
        &self,
        mut events: EventStream<Vec<u8>>,
        opened: Identity,
        on_change: &mut impl FnMut(),
    ) {
        let gone =
            EventMask::IGNORED | EventMask::DELETE_SELF | EventMask::MOVE_SELF | EventMask::UNMOUNT;
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(event)) if event.mask.intersects(gone) => return,
                    Some(Ok(event)) => {
                        if event.name.as_deref().is_none_or(self.is_of_interest) {
                            on_change();
                        }
                    }
                    Some(Err(_)) | None => return,
                },
                () = tokio::time::sleep(self.recheck) => {
                    if identity(&self.path).ok() != Some(opened) {
                        return;
                    }
                    on_change();
                }
            }
        }
    }
}

/// Tells a file from a later one of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    created: (i64, i64),
}

/// What is at `path`, following no link.
pub(crate) fn identity(path: &Path) -> io::Result<Identity> {
    let meta = std::fs::symlink_metadata(path)?;
    // An inode number may be used again at once; the time of its last status change tells two
    // sockets apart. A directory's changes with its content, and it is never told by it.
    let created = if meta.is_dir() { (0, 0) } else { (meta.ctime(), meta.ctime_nsec()) };
    Ok(Identity { device: meta.dev(), inode: meta.ino(), created })
}

#[cfg(test)]
mod tests;
