//! One device plugin at a time on a node: two would write one file and delete each other's
//! sockets. An upgrade may start the new one while the old one still runs.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use mpshare_api::MpsRoot;
use rustix::fs::{FlockOperation, flock};

use mpshare_telemetry::Failures;

/// Between two looks whether the other one has ended.
const LOOK: Duration = Duration::from_millis(100);

/// Waits until no other device plugin runs, and locks the next one out for as long as the answer
/// is kept. `None` where no lock can be made, for example on a full disk: it runs all the same, as
/// a node without shares would be worse.
pub(crate) async fn turn(root: &MpsRoot) -> Option<File> {
    let mut waiting = Failures::new("waiting for another device plugin of this node to end");
    loop {
        match try_lock(root) {
            Ok(lock) => {
                waiting.over();
                return Some(lock);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                waiting.failed(&root.device_plugin_lock().display().to_string());
                tokio::time::sleep(LOOK).await;
            }
            Err(error) => {
                tracing::warn!(problem = %error, "no lock against a second device plugin");
                return None;
            }
        }
    }
}

fn try_lock(root: &MpsRoot) -> io::Result<File> {
    std::fs::create_dir_all(root.path())?;
    // For reading too: a FIFO in its place would wait for a reader otherwise.
    let options = File::options().read(true).write(true).create(true).truncate(false).clone();
    let path = root.device_plugin_lock();
    loop {
        let file = options.open(&path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        // A cleanup of the node may have removed it in between: such a lock locks nobody out.
        if is_at(&file, &path)? {
            return Ok(file);
        }
    }
}

/// Whether `path` still names this file.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let there = match path.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        there => there?,
    };
    let ours = file.metadata()?;
    Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_second_one_waits_for_the_end_of_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let root = MpsRoot::new(dir.path().join("mps"));
        let first = turn(&root).await.unwrap();
        let mut second = Box::pin(turn(&root));
        let early = tokio::time::timeout(LOOK * 3, &mut second).await;
        assert!(early.is_err(), "the first one still runs");
        drop(first);
        let soon = Duration::from_secs(10);
        assert!(tokio::time::timeout(soon, second).await.unwrap().is_some());
    }

    #[test]
    fn a_file_is_at_its_path_until_it_is_removed_or_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let root = MpsRoot::new(dir.path());
        let path = root.device_plugin_lock();
        let file = try_lock(&root).unwrap();
        assert!(is_at(&file, &path).unwrap());
        std::fs::remove_file(&path).unwrap();
        assert!(!is_at(&file, &path).unwrap());
        let next = try_lock(&root).unwrap();
        assert!(is_at(&next, &path).unwrap() && !is_at(&file, &path).unwrap());
    }

    #[tokio::test]
    async fn where_no_lock_can_be_made_it_runs_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let root = MpsRoot::new(dir.path());
        std::fs::create_dir(root.device_plugin_lock()).unwrap();
        assert!(turn(&root).await.is_none());
    }
}
