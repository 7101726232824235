//! Who holds a lock, in words of `/proc/locks`. The kernel has no question for this kind of lock.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;

use mpshare_mps::Pid;

/// The process that locked this file; `None` where that can't be seen.
pub(super) fn of(file: &File) -> Option<Pid> {
    let inode = file.metadata().ok()?.ino();
    in_table(&std::fs::read_to_string("/proc/locks").ok()?, inode)
}

/// `1: FLOCK  ADVISORY  WRITE 4711 00:1a:1234 0 EOF`. The device is left out: file systems with
/// several of them report another one than `stat` does.
fn in_table(table: &str, inode: u64) -> Option<Pid> {
    table.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (kind, _, _) = (words.next()?, words.next()?, words.next()?);
        let pid = words.next()?.parse().ok().and_then(Pid::new)?;
        let number = words.next()?.rsplit(':').next()?.parse::<u64>().ok()?;
        (kind == "FLOCK" && number == inode).then_some(pid)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_found_by_the_files_inode_and_waiters_are_not_taken_for_it() {
        let table = "1: POSIX  ADVISORY  WRITE 11 00:1a:7 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 12 00:1a:8 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 13 00:1a:7 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 14 00:1a:7 0 EOF\nnonsense\n";
        assert_eq!(in_table(table, 7).map(Pid::get), Some(13));
        assert_eq!(in_table(table, 9), None);
    }
}
