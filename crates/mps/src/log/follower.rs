//! Reads a log as it grows.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// More than this at once is passed over.
const MOST: u64 = 256 * 1024;

/// What was written into a log since it was last read. While nothing is, a look is one system call.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    inode: u64,
    read_to: u64,
}

/// What is new in a log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct News {
    /// Whole lines.
    pub text: String,
    /// Whether there was more than is told: too much at once, or a log that was cut.
    pub has_gap: bool,
}

impl Follower {
    /// Reads what is written from now on.
    pub fn from_now(path: &Path) -> Self {
        let (inode, read_to) = Self::place(path).unwrap_or_default();
        Self { path: path.to_owned(), inode, read_to }
    }

    /// The log.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn place(path: &Path) -> io::Result<(u64, u64)> {
        let metadata = path.metadata()?;
        Ok((metadata.ino(), metadata.len()))
    }

    /// What is new. A log that isn't there has nothing new.
    pub fn news(&mut self) -> io::Result<News> {
        let (inode, length) = match Self::place(&self.path) {
            Ok(place) => place,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(News::default()),
            Err(error) => return Err(error),
        };
        // Another file, or the same one emptied (copytruncate, facts/mps.md 1.1).
        let mut has_gap = inode != self.inode || length < self.read_to;
        if has_gap {
            (self.inode, self.read_to) = (inode, 0);
        }
        if length == self.read_to {
            return Ok(News { text: String::new(), has_gap });
        }
        if length - self.read_to > MOST {
            has_gap = true;
            self.read_to = length - MOST;
        }
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.read_to))?;
        let mut bytes = Vec::new();
        file.take(length - self.read_to).read_to_end(&mut bytes)?;
        // The rest of the last line is to come.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        bytes.truncate(whole);
        self.read_to += u64::try_from(whole).unwrap_or(0);
        Ok(News { text: String::from_utf8_lossy(&bytes).into_owned(), has_gap })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn log() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.log");
        (dir, path)
    }

    fn write(path: &Path, text: &str) {
        let mut file = File::options().append(true).create(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn told(follower: &mut Follower) -> (String, bool) {
        let News { text, has_gap } = follower.news().unwrap();
        (text, has_gap)
    }

    #[test]
    fn each_whole_line_is_told_once() {
        let (_dir, path) = log();
        write(&path, "old\n");
        let mut follower = Follower::from_now(&path);
        assert_eq!(told(&mut follower), (String::new(), false));
        write(&path, "a\nb");
        assert_eq!(told(&mut follower), ("a\n".to_owned(), false));
        write(&path, "c\n");
        assert_eq!(told(&mut follower), ("bc\n".to_owned(), false));
        assert_eq!(told(&mut follower), (String::new(), false));
    }

    #[test]
    fn a_log_that_is_cut_or_another_file_has_a_gap() {
        let (_dir, path) = log();
        write(&path, "long enough\n");
        let mut follower = Follower::from_now(&path);
        std::fs::write(&path, "new\n").unwrap();
        assert_eq!(told(&mut follower), ("new\n".to_owned(), true));
        std::fs::write(path.with_extension("next"), "another file\n").unwrap();
        std::fs::rename(path.with_extension("next"), &path).unwrap();
        assert_eq!(told(&mut follower), ("another file\n".to_owned(), true));
    }

    #[test]
    fn of_a_flood_the_end_is_told_and_that_there_was_more() {
        let (_dir, path) = log();
        let mut follower = Follower::from_now(&path);
        write(&path, &"0123456789abcde\n".repeat(40_000));
        let (text, has_gap) = told(&mut follower);
        assert!(has_gap);
        assert!(u64::try_from(text.len()).unwrap() <= MOST);
        assert_eq!(told(&mut follower), (String::new(), false));
    }

    #[test]
    fn a_log_that_comes_later_is_read_from_its_begin() {
        let (_dir, path) = log();
        let mut follower = Follower::from_now(&path);
        assert_eq!(told(&mut follower), (String::new(), false));
        write(&path, "first\n");
        assert_eq!(told(&mut follower).0, "first\n");
    }
}
