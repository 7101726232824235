//! A directory that is watched for as long as a role runs, through deletion and recreation.
//!
//! inotify makes it quick; a look at fixed intervals makes it certain. The look is needed: the
//! kernel says nothing of a removed directory as long as any process has a file beneath it open,
//! as an MPS daemon has its logs (`dentry_unlink_inode` in Linux's `fs/dcache.c`).
//!
//! [`sole`] is what the roles share besides: one of each at a time.

mod removed;
pub mod sole;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt;
use inotify::{EventMask, EventStream, Inotify};
use mpshare_telemetry::Failures;

pub use inotify::WatchMask;
pub use removed::Removed;

/// Room for a burst of events; longer ones come in the next read.
const BUFFER_BYTES: usize = 4096;

/// The longest pause before a directory that can't be watched is tried again.
const LONGEST_RETRY: Duration = Duration::from_secs(1);

/// A directory to watch.
#[derive(Debug, Clone)]
pub struct Directory {
    /// Where it is.
    pub path: PathBuf,
    /// What to do while it isn't there.
    pub if_missing: IfMissing,
    /// Which changes of its files count.
    pub mask: WatchMask,
    /// Which names count.
    pub is_of_interest: fn(&OsStr) -> bool,
    /// How often to look in any case.
    pub recheck: Duration,
}

/// What to do while a directory isn't there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfMissing {
    /// Make it: it is ours.
    Create,
    /// Wait for its owner.
    Wait,
}

impl Directory {
    /// Begins to watch with the first [`Watch::next`].
    pub fn watch(self) -> Watch {
        let failures = Failures::new("directory can't be watched");
        Watch { directory: self, opened: None, must_pause: false, failures }
    }

    fn open(&self) -> io::Result<Opened> {
        if self.if_missing == IfMissing::Create {
            std::fs::create_dir_all(&self.path)?;
        }
        let inotify = Inotify::init()?;
        let itself = WatchMask::DELETE_SELF | WatchMask::MOVE_SELF | WatchMask::ONLYDIR;
        inotify.watches().add(&self.path, self.mask | itself)?;
        let identity = identity(&self.path)?;
        let events = inotify.into_event_stream(vec![0; BUFFER_BYTES])?;
        Ok(Opened { events, identity })
    }
}

/// The changes of a directory.
#[derive(Debug)]
pub struct Watch {
    directory: Directory,
    opened: Option<Opened>,
    /// The last attempt to open it failed.
    must_pause: bool,
    failures: Failures,
}

#[derive(Debug)]
struct Opened {
    events: EventStream<Vec<u8>>,
    identity: Identity,
}

impl Watch {
    /// Waits until something may have changed: at once when it is called first, after each change,
    /// and at fixed intervals. Names the file; `None` where it may be any of them. The error is the
    /// end: a role that is left with a removed directory can only be started again. Has to be
    /// called inside a tokio runtime.
    pub async fn next(&mut self) -> Result<Option<OsString>, Removed> {
        loop {
            Removed::look(&self.directory.path).await?;
            let Some(opened) = &mut self.opened else {
                self.open().await;
                return Ok(None);
            };
            tokio::select! {
                event = opened.events.next() => match event {
                    Some(Ok(event)) if !is_end(event.mask) => {
                        if event.name.as_deref().is_none_or(self.directory.is_of_interest) {
                            return Ok(event.name);
                        }
                    }
                    _ => self.lost(),
                },
                () = tokio::time::sleep(self.directory.recheck) => {
                    Removed::look(&self.directory.path).await?;
                    if identity(&self.directory.path).ok() == Some(opened.identity) {
                        return Ok(None);
                    }
                    self.lost();
                }
            }
        }
    }

    async fn open(&mut self) {
        if self.must_pause {
            tokio::time::sleep(self.directory.recheck.min(LONGEST_RETRY)).await;
        }
        match self.directory.open() {
            Ok(opened) => {
                self.failures.over();
                self.opened = Some(opened);
                self.must_pause = false;
            }
            Err(error) => {
                self.failures.failed(&format!("`{}`: {error}", self.directory.path.display()));
                self.must_pause = true;
            }
        }
    }

    /// What is at the path now isn't what was opened.
    fn lost(&mut self) {
        self.failures.failed(&format!("`{}` was taken away", self.directory.path.display()));
        self.opened = None;
    }
}

fn is_end(mask: EventMask) -> bool {
    let itself = EventMask::DELETE_SELF | EventMask::MOVE_SELF;
    mask.intersects(itself | EventMask::IGNORED | EventMask::UNMOUNT)
}

/// Tells a file from a later one of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
    created: (i64, i64),
}

/// What is at `path`, following no link.
pub fn identity(path: &Path) -> io::Result<Identity> {
    let meta = std::fs::symlink_metadata(path)?;
    // An inode number may be used again at once; the time of its last status change tells two
    // sockets apart. A directory's changes with its content, and it is never told by it.
    let created = if meta.is_dir() { (0, 0) } else { (meta.ctime(), meta.ctime_nsec()) };
    Ok(Identity { device: meta.dev(), inode: meta.ino(), created })
}

#[cfg(test)]
mod tests;
