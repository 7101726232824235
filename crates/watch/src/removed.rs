//! A directory that was removed while it stays in sight.
//!
//! A container that has a directory of the host mounted keeps it when the host removes it: the
//! path is there, has no link any more, and nothing can be made in it (`ENOENT`). Only a new
//! container gets the directory that takes its place. Where the path isn't a mount it just isn't
//! there, which is no matter of this module: whoever owns it can make it again.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

/// How often a directory without a link is looked at before it counts as removed.
const LOOKS: u32 = 20;

/// The pause before each of these looks.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// A directory has been removed where it comes from, and can't be made again from here.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "directory `{}` has been removed from the host and can't be made again from inside this container, so this process ends; hint: the kubelet starts the container again, which makes the directory anew",
    .path.display()
)]
pub struct Removed {
    /// Of the directory.
    pub path: PathBuf,
}

impl Removed {
    /// The error where `path`, or the directory above it that is the nearest to be there, has been
    /// removed.
    pub async fn look(path: &Path) -> Result<(), Self> {
        let nearest = path.ancestors().find_map(|at| Some((at, links(at)?)));
        let Some((at, 0)) = nearest else { return Ok(()) };
        // A directory that is being removed right now has no link for a moment, and then isn't
        // there; on a busy machine that moment lasts.
        for _ in 0..LOOKS {
            tokio::time::sleep(BETWEEN_LOOKS).await;
            if links(at) != Some(0) {
                return Ok(());
            }
        }
        Err(Self { path: at.to_owned() })
    }
}

fn links(path: &Path) -> Option<u64> {
    Some(path.metadata().ok()?.nlink())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd as _;

    use super::*;

    /// A path that leads to this open directory, as a mount does.
    fn path_of(open: &File) -> PathBuf {
        format!("/proc/self/fd/{}", open.as_raw_fd()).into()
    }

    #[tokio::test]
    async fn a_directory_that_is_removed_but_in_sight_is_told_from_one_that_is_not_there() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("mps");
        std::fs::create_dir(&dir).unwrap();
        let open = File::open(&dir).unwrap();
        let mounted = path_of(&open);
        assert_eq!(Removed::look(&mounted).await, Ok(()));
        std::fs::remove_dir(&dir).unwrap();
        assert_eq!(Removed::look(&dir).await, Ok(()), "not there, and could be made");
        std::fs::create_dir(&dir).unwrap();
        assert_eq!(Removed::look(&mounted).await, Err(Removed { path: mounted.clone() }));
        assert_eq!(Removed::look(&mounted.join("a/b")).await, Err(Removed { path: mounted }));
    }

    #[tokio::test]
    async fn a_directory_is_not_told_removed_while_it_is_being_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("mps");
        let removing = dir.clone();
        let remover = std::thread::spawn(move || {
            for _ in 0..20_000 {
                std::fs::create_dir(&removing).unwrap();
                std::fs::remove_dir(&removing).unwrap();
            }
        });
        let mut without_link = 0;
        while !remover.is_finished() {
            without_link += u32::from(links(&dir) == Some(0));
            assert_eq!(Removed::look(&dir).await, Ok(()));
        }
        assert_ne!(without_link, 0, "never met in the middle, so this shows nothing");
    }
}
