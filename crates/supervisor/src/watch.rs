//! Tells when a file in the MPS root may have changed.

use std::io;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use mpshare_api::MpsRoot;
use mpshare_watch::{Directory, IfMissing, WatchMask};

use crate::event::Event;

/// How often the files are read whatever was told of them.
const RECHECK: Duration = Duration::from_secs(10);

/// The one document here that the supervisor writes itself.
const REPORT: &str = "status.json";

/// Starts the thread that sends [`Event::FilesChanged`] and [`Event::ReportTouched`], and
/// [`Event::RootRemoved`] as the last; it ends when nobody listens any more.
pub(crate) fn watch_files(root: &MpsRoot, events: Sender<Event>) -> io::Result<()> {
    let directory = Directory {
        path: root.path().to_owned(),
        if_missing: IfMissing::Create,
        // Every writer replaces its file by rename.
        mask: WatchMask::MOVED_TO | WatchMask::CLOSE_WRITE | WatchMask::DELETE,
        is_of_interest: |name| {
            let read = [REPORT, "config.yaml", "allocations.json", "bound-pods.json"];
            read.iter().any(|file| name == *file)
        },
        recheck: RECHECK,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("files".to_owned()).spawn(move || {
        runtime.block_on(async {
            let mut watch = directory.watch();
            loop {
                let event = match watch.next().await {
                    Ok(Some(name)) if name == REPORT => Event::ReportTouched,
                    Ok(_) => Event::FilesChanged,
                    Err(removed) => Event::RootRemoved(removed),
                };
                let is_last = matches!(event, Event::RootRemoved(_));
                if events.send(event).is_err() || is_last {
                    return;
                }
            }
        });
    })?;
    Ok(())
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
        assert!(
            matches!(next(), Ok(Event::FilesChanged)),
            "the watch has ended, a new one is there"
        );
        std::fs::write(path.join("config.yaml"), "").unwrap();
        assert!(matches!(next(), Ok(Event::FilesChanged)), "it tells of the file");
        std::fs::remove_dir_all(path).unwrap();
        std::fs::remove_dir_all(moved).unwrap();
    }
}
