//! One process of a kind at a time on a node, by a lock on a file that nobody reads.
//!
//! An upgrade may start a new one while the old one still runs, and somebody may install a second
//! release: two would write one file. The lock goes with the process that holds it. A cleanup of
//! the node removes the file, so a lock counts only while its file is still at its path.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use mpshare_telemetry::Failures;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Between two looks whether the other one has ended.
const LOOK: Duration = Duration::from_millis(100);

/// What became of an attempt to lock a file.
#[derive(Debug)]
pub enum Attempt {
    /// It is ours for as long as this is kept.
    Locked(File),
    /// Somebody else's.
    Held(File),
}

/// Tries to lock the file at `path`, which is made if it isn't there.
pub fn try_lock(path: &Path) -> io::Result<Attempt> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    loop {
        // For reading too: a FIFO in its place would wait for a reader otherwise.
        let file = File::options().read(true).append(true).create(true).open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if is_at(&file, path)? => return Ok(Attempt::Locked(file)),
            // Removed between the two: the file that is there now counts.
            Ok(()) | Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => return Ok(Attempt::Held(file)),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Whether `path` still names this file: a lock on a removed one locks nobody out.
pub fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let there = match path.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        there => there?,
    };
    let ours = file.metadata()?;
    Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino()))
}

/// Waits until nobody else holds the lock at `path`, and locks the next one out for as long as the
/// answer is kept. `waiting` is what the log calls this. `None` where no lock can be made, for
/// example on a full disk: whoever asks works all the same, as a node without shares would be
/// worse.
pub async fn turn(path: &Path, waiting: &'static str) -> Option<File> {
    let mut waiting = Failures::new(waiting);
    loop {
        match try_lock(path) {
            Ok(Attempt::Locked(lock)) => {
                waiting.over();
                return Some(lock);
            }
            Ok(Attempt::Held(file)) => {
                waiting.failed(&held(path, &file));
                drop(file);
                tokio::time::sleep(LOOK).await;
            }
            Err(error) => {
                let lock = path.display();
                tracing::warn!(%lock, problem = %error, "no lock against a second process");
                return None;
            }
        }
    }
}

/// Who holds the lock of this file, in words.
pub fn held(path: &Path, file: &File) -> String {
    let lock = path.display();
    match holder(file) {
        Some(pid) => format!("process {pid} holds `{lock}`"),
        None => format!("a process that can't be seen from here holds `{lock}`"),
    }
}

/// The process that locked this file; `None` where that can't be seen, for example from inside a
/// container with PIDs of its own. The kernel has no question for this kind of lock, only a list.
pub fn holder(file: &File) -> Option<u32> {
    let inode = file.metadata().ok()?.ino();
    in_table(&std::fs::read_to_string("/proc/locks").ok()?, inode)
}

/// `1: FLOCK  ADVISORY  WRITE 4711 00:1a:1234 0 EOF`. The device is left out: file systems with
/// several of them report another one than `stat` does.
fn in_table(table: &str, inode: u64) -> Option<u32> {
    table.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (kind, _, _) = (words.next()?, words.next()?, words.next()?);
        let pid = words.next()?.parse().ok().filter(|pid| *pid != 0)?;
        let number = words.next()?.rsplit(':').next()?.parse::<u64>().ok()?;
        (kind == "FLOCK" && number == inode).then_some(pid)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_second_one_waits_for_the_end_of_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mps/lock");
        let first = turn(&path, "test").await.unwrap();
        assert_eq!(holder(&first), Some(std::process::id()));
        let mut second = Box::pin(turn(&path, "test"));
        let early = tokio::time::timeout(LOOK * 3, &mut second).await;
        assert!(early.is_err(), "the first one still runs");
        drop(first);
        let soon = Duration::from_secs(10);
        assert!(tokio::time::timeout(soon, second).await.unwrap().is_some());
    }

    #[test]
    fn a_file_is_at_its_path_until_it_is_removed_or_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let locked = || match try_lock(&path).unwrap() {
            Attempt::Locked(file) => file,
            Attempt::Held(_) => panic!("held"),
        };
        let file = locked();
        assert!(is_at(&file, &path).unwrap());
        assert!(matches!(try_lock(&path).unwrap(), Attempt::Held(_)));
        std::fs::remove_file(&path).unwrap();
        assert!(!is_at(&file, &path).unwrap());
        let next = locked();
        assert!(is_at(&next, &path).unwrap() && !is_at(&file, &path).unwrap());
    }

    #[tokio::test]
    async fn where_no_lock_can_be_made_it_runs_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        assert!(turn(dir.path(), "test").await.is_none());
    }

    #[test]
    fn the_holder_is_found_by_the_files_inode_and_waiters_are_not_taken_for_it() {
        let table = "1: POSIX  ADVISORY  WRITE 11 00:1a:7 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 12 00:1a:8 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 13 00:1a:7 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 14 00:1a:7 0 EOF\nnonsense\n";
        assert_eq!(in_table(table, 7), Some(13));
        assert_eq!(in_table(table, 9), None);
    }
}
