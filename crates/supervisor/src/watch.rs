//! Tells when a file in the MPS root may have changed.
//!
//! Watches the directory, not the files: every writer replaces its file by rename. The directory
//! may be removed and made again; then the watch is set up anew.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use inotify::{EventMask, Inotify, WatchMask};
use mpshare_api::MpsRoot;
use tracing::warn;

use crate::event::Event;

/// How long to wait before a broken watch is set up anew.
const RETRY: Duration = Duration::from_secs(1);

/// Starts the thread that sends [`Event::FilesChanged`]; it ends when nobody listens any more.
pub(crate) fn watch_files(root: &MpsRoot, events: Sender<Event>) -> std::io::Result<()> {
    let path = root.path().to_owned();
    thread::Builder::new().name("files".to_owned()).spawn(move || {
        let mut has_complained = false;
        loop {
            match watch_once(&path, &events) {
                Ok(()) => return,
                Err(error) if !has_complained => {
                    warn!(path = %path.display(), %error, "files can't be watched, retrying");
                    has_complained = true;
                }
                Err(_) => {}
            }
            thread::park_timeout(RETRY);
            if events.send(Event::FilesChanged).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

/// `Ok` once nobody listens any more.
fn watch_once(path: &PathBuf, events: &Sender<Event>) -> std::io::Result<()> {
    std::fs::create_dir_all(path)?;
    let mut inotify = Inotify::init()?;
    let mask = WatchMask::MOVED_TO | WatchMask::CLOSE_WRITE | WatchMask::DELETE;
    inotify.watches().add(path, mask | WatchMask::DELETE_SELF | WatchMask::MOVE_SELF)?;
    // Whatever happened before the watch was there.
    if events.send(Event::FilesChanged).is_err() {
        return Ok(());
    }
    let mut buffer = [0; 4096];
    loop {
        let (mut inputs, mut report) = (false, false);
        for event in inotify.read_events_blocking(&mut buffer)? {
            // Removed, or moved away: what comes to its place isn't watched yet.
            if event.mask.intersects(EventMask::IGNORED | EventMask::MOVE_SELF) {
                return Err(ErrorKind::NotFound.into());
            }
            let is = |name: &str| event.name.is_some_and(|found| found == name);
            // An overflow may have swallowed anything.
            let is_lost = event.mask.contains(EventMask::Q_OVERFLOW);
            inputs |= is_lost || is("config.yaml") || is("allocations.json");
            report |= is_lost || is("status.json");
        }
        if report && events.send(Event::ReportTouched).is_err() {
            return Ok(());
        }
        if inputs && events.send(Event::FilesChanged).is_err() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_directory_that_takes_the_place_of_the_watched_one_is_watched() {
        let path = std::env::temp_dir().join(format!("mpshare-watch-{}", std::process::id()));
        let moved = path.with_extension("moved");
        let (tell, told) = mpsc::channel();
        watch_files(&MpsRoot::new(&path), tell).unwrap();
        let next = || told.recv_timeout(Duration::from_secs(10));
        assert!(matches!(next(), Ok(Event::FilesChanged)), "the watch is there");
        std::fs::rename(&path, &moved).unwrap();
        assert!(matches!(next(), Ok(Event::FilesChanged)), "the watch has ended");
        assert!(matches!(next(), Ok(Event::FilesChanged)), "a new watch is there");
        std::fs::write(path.join("config.yaml"), "").unwrap();
        assert!(matches!(next(), Ok(Event::FilesChanged)), "it tells of the file");
        std::fs::remove_dir_all(path).unwrap();
        std::fs::remove_dir_all(moved).unwrap();
    }
}
