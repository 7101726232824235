use super::*;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

const DEADLINE: Duration = Duration::from_secs(10);

fn directory(path: &Path, if_missing: IfMissing, recheck: Duration) -> Directory {
    Directory {
        path: path.to_owned(),
        if_missing,
        mask: WatchMask::CREATE | WatchMask::MOVED_TO | WatchMask::DELETE,
        is_of_interest: |name| name == "a",
        recheck,
    }
}

/// Counts the changes of a directory, whose rechecks are too rare to matter.
struct Counter {
    changes: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Counter {
    async fn follow(path: &Path, if_missing: IfMissing) -> Self {
        let mut watch = directory(path, if_missing, Duration::from_mins(10)).watch();
        let changes = Arc::new(AtomicUsize::new(0));
        let told = Arc::clone(&changes);
        let task = tokio::spawn(async move {
            loop {
                watch.next().await.unwrap();
                told.fetch_add(1, Ordering::Relaxed);
            }
        });
        let counter = Self { changes, task };
        counter.next(0).await;
        counter
    }

    fn count(&self) -> usize {
        self.changes.load(Ordering::Relaxed)
    }

    /// Waits until there are more than `before`.
    async fn next(&self, before: usize) {
        let deadline = Instant::now() + DEADLINE;
        while self.count() <= before {
            assert!(Instant::now() < deadline, "no change after {before}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test]
async fn changes_of_the_names_that_count_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let counter = Counter::follow(dir.path(), IfMissing::Wait).await;
    let before = counter.count();
    std::fs::write(dir.path().join("b"), "").unwrap();
    std::fs::write(dir.path().join("a"), "").unwrap();
    counter.next(before).await;
    assert_eq!(counter.count(), before + 1);
}

#[tokio::test]
async fn a_directory_of_ours_is_made_and_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("root/mps");
    let counter = Counter::follow(&path, IfMissing::Create).await;
    assert!(path.exists());
    for _ in 0..3 {
        let before = counter.count();
        std::fs::remove_dir_all(&path).unwrap();
        counter.next(before).await;
        assert!(path.exists());
        let before = counter.count();
        std::fs::write(path.join("a"), "").unwrap();
        counter.next(before).await;
    }
}

#[tokio::test]
async fn a_directory_of_somebody_else_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("plugins");
    let counter = Counter::follow(&path, IfMissing::Wait).await;
    assert!(!path.exists());
    std::fs::create_dir(&path).unwrap();
    // Its appearance is found by looking; only then are its files watched.
    counter.next(counter.count()).await;
    let before = counter.count();
    std::fs::write(path.join("a"), "").unwrap();
    counter.next(before).await;
}

#[tokio::test]
async fn a_renamed_file_and_a_replaced_directory_are_noticed() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("d");
    std::fs::create_dir(&dir).unwrap();
    let mut watch = directory(&dir, IfMissing::Wait, Duration::from_mins(10)).watch();
    let mut next = async || tokio::time::timeout(DEADLINE, watch.next()).await.unwrap().unwrap();
    assert_eq!(next().await, None, "at first");
    std::fs::write(dir.join("other"), "").unwrap();
    std::fs::write(dir.join("next"), "").unwrap();
    std::fs::rename(dir.join("next"), dir.join("a")).unwrap();
    assert_eq!(next().await, Some("a".into()), "renamed");
    std::fs::remove_dir_all(&dir).unwrap();
    std::fs::create_dir(&dir).unwrap();
    assert_eq!(next().await, Some("a".into()), "deleted");
    assert_eq!(next().await, None, "the new directory");
    std::fs::write(dir.join("a"), "").unwrap();
    assert_eq!(next().await, Some("a".into()), "in the new directory");
}

#[tokio::test]
async fn a_directory_that_is_removed_while_a_file_beneath_it_is_open_is_missed() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("d");
    std::fs::create_dir_all(dir.join("gpu")).unwrap();
    let _log = std::fs::File::create(dir.join("gpu/log")).unwrap();
    let mut watch = directory(&dir, IfMissing::Wait, Duration::from_millis(20)).watch();
    watch.next().await.unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    std::fs::create_dir(&dir).unwrap();
    let told = async {
        while watch.next().await.unwrap().is_none() {
            // Only a watch of the new directory tells of it.
            std::fs::write(dir.join("next"), "").unwrap();
            std::fs::rename(dir.join("next"), dir.join("a")).unwrap();
        }
    };
    tokio::time::timeout(DEADLINE, told).await.unwrap();
}

#[tokio::test]
async fn a_removed_directory_that_stays_in_sight_is_the_end() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("d");
    std::fs::create_dir(&dir).unwrap();
    let open = std::fs::File::open(&dir).unwrap();
    // Leads to the open directory, as a container's mount does.
    let path = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
    let mut watch = directory(&path, IfMissing::Create, Duration::from_millis(20)).watch();
    assert_eq!(watch.next().await, Ok(None));
    std::fs::remove_dir(&dir).unwrap();
    let removed = async {
        loop {
            if let Err(removed) = watch.next().await {
                return removed;
            }
        }
    };
    let removed = tokio::time::timeout(DEADLINE, removed).await.unwrap();
    assert_eq!(removed.path, path);
}

#[test]
fn a_socket_of_the_same_name_has_another_identity() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.sock");
    let first = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let before = identity(&path).unwrap();
    drop(first);
    std::fs::remove_file(&path).unwrap();
    let _second = std::os::unix::net::UnixListener::bind(&path).unwrap();
    assert_ne!(identity(&path).unwrap(), before);
}
