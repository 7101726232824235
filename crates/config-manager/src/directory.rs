//! Changes of a directory, told by inotify. The directory is watched and not its files, because
//! its writers (our own programs, and the kubelet for a mounted `ConfigMap`) replace files by
//! rename.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::{Stream, StreamExt as _, stream};
use inotify::{EventMask, EventStream, Inotify, WatchMask};

/// How often to look at a directory that can't be watched.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Says that something may have changed: at first, and after every event about a file whose name
/// `concerns` us. It never ends; a directory that is replaced is watched again, and one that can't
/// be watched is looked at once a second.
pub(crate) fn changes(directory: PathBuf, concerns: fn(&OsStr) -> bool) -> impl Stream<Item = ()> {
    let watcher = Watcher { directory, concerns, events: None, has_failed: false };
    stream::unfold(watcher, |mut watcher| async move {
        watcher.next().await;
        Some(((), watcher))
    })
}

struct Watcher {
    directory: PathBuf,
    concerns: fn(&OsStr) -> bool,
    events: Option<EventStream<Vec<u8>>>,
    has_failed: bool,
}

impl Watcher {
    async fn next(&mut self) {
        loop {
            let Some(events) = &mut self.events else {
                return self.open().await;
            };
            match events.next().await {
                Some(Ok(event)) if event.mask.contains(EventMask::Q_OVERFLOW) => return,
                Some(Ok(event)) if is_end(event.mask) => self.events = None,
                Some(Ok(event)) if event.name.as_deref().is_some_and(self.concerns) => return,
                Some(Ok(_)) => {}
                Some(Err(_)) | None => self.events = None,
            }
        }
    }

    /// Begins to watch. While that fails (no such directory, too many watches on this machine) the
    /// caller looks for itself from time to time.
    async fn open(&mut self) {
        if self.has_failed {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        match open(&self.directory) {
            Ok(events) => {
                self.events = Some(events);
                self.has_failed = false;
            }
            Err(error) => {
                if !self.has_failed {
                    tracing::warn!(directory = %self.directory.display(), %error, "can't watch, looking once a second");
                }
                self.has_failed = true;
            }
        }
    }
}

fn open(directory: &Path) -> io::Result<EventStream<Vec<u8>>> {
    let inotify = Inotify::init()?;
    let mask = WatchMask::CREATE
        | WatchMask::CLOSE_WRITE
        | WatchMask::MOVED_TO
        | WatchMask::MOVED_FROM
        | WatchMask::DELETE
        | WatchMask::DELETE_SELF
        | WatchMask::MOVE_SELF;
    inotify.watches().add(directory, mask)?;
    inotify.into_event_stream(vec![0; 4096])
}

fn is_end(mask: EventMask) -> bool {
    mask.intersects(EventMask::IGNORED | EventMask::DELETE_SELF | EventMask::MOVE_SELF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[tokio::test]
    async fn a_renamed_file_and_a_replaced_directory_are_noticed() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("d");
        fs::create_dir(&dir).unwrap();
        let mut changes = Box::pin(changes(dir.clone(), |name| name == "status.json"));
        let deadline = Duration::from_secs(10);
        let mut next = async || tokio::time::timeout(deadline, changes.next()).await.unwrap();
        next().await.unwrap();
        fs::write(dir.join("other"), "").unwrap();
        fs::write(dir.join("next"), "").unwrap();
        fs::rename(dir.join("next"), dir.join("status.json")).unwrap();
        next().await.unwrap();
        fs::remove_dir_all(&dir).unwrap();
        fs::create_dir(&dir).unwrap();
        // The deletion of the file, then the new directory.
        next().await.unwrap();
        next().await.unwrap();
        fs::write(dir.join("status.json"), "").unwrap();
        next().await.unwrap();
    }
}
