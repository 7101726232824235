//! Small typed reads of `/proc`: who a process is, what it was started with, whose it is.
//!
//! A process may be gone between any two reads; that is `None` here and never an error.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::pid::{Pid, ProcessId};

mod cgroup;
mod environment;
mod handle;
mod stat;

pub use cgroup::{ContainerId, ContainerOf, Home, PodUid, container_of, home_of};
pub use environment::Environment;
pub use handle::ProcessHandle;
pub use stat::{Stat, parse_stat};

/// A mounted `/proc`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proc {
    root: PathBuf,
}

impl Default for Proc {
    fn default() -> Self {
        Self::new("/proc")
    }
}

impl Proc {
    /// The one mounted at `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// State, parent and start of a process.
    pub fn stat(&self, pid: Pid) -> io::Result<Option<Stat>> {
        let text = present(fs::read(self.file(pid, "stat")))?;
        let stat = text.map(|bytes| {
            parse_stat(&String::from_utf8_lossy(&bytes))
                .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a stat line"))
        });
        stat.transpose()
    }

    /// The identity of a process that lives; `None` for one that is gone or only waits for its
    /// parent to notice.
    pub fn identify(&self, pid: Pid) -> io::Result<Option<ProcessId>> {
        let stat = self.stat(pid)?.filter(Stat::lives);
        Ok(stat.map(|stat| ProcessId { pid, start: stat.start }))
    }

    /// The environment that a process was started with.
    pub fn environment(&self, pid: Pid) -> io::Result<Option<Environment>> {
        let bytes = present(fs::read(self.file(pid, "environ")))?;
        Ok(bytes.map(Environment::from_bytes))
    }

    /// The command line of a process; what isn't UTF-8 in it is replaced.
    pub fn arguments(&self, pid: Pid) -> io::Result<Option<Vec<String>>> {
        let bytes = present(fs::read(self.file(pid, "cmdline")))?;
        Ok(bytes.map(|bytes| {
            let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
            words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
        }))
    }

    /// The file name of a process's program.
    pub fn program(&self, pid: Pid) -> io::Result<Option<OsString>> {
        let target = present(fs::read_link(self.file(pid, "exe")))?;
        Ok(target.map(|path| {
            let name = path.file_name().unwrap_or_default().to_owned().into_vec();
            // An upgrade of the driver replaces the file under a running program.
            match name.strip_suffix(b" (deleted)") {
                Some(name) => OsString::from_vec(name.to_vec()),
                None => OsString::from_vec(name),
            }
        }))
    }

    /// The effective user of a process.
    pub fn uid(&self, pid: Pid) -> io::Result<Option<u32>> {
        // Not the owner of its directory, which is root for a process that has changed its user.
        let text = present(fs::read(self.file(pid, "status")))?;
        Ok(text.and_then(|bytes| {
            let text = String::from_utf8_lossy(&bytes);
            let line = text.lines().find_map(|line| line.strip_prefix("Uid:"))?;
            line.split_whitespace().nth(1)?.parse().ok()
        }))
    }

    /// The pod and container of a process, read from its cgroup; `None` for one of the host.
    pub fn container(&self, pid: Pid) -> io::Result<Option<ContainerOf>> {
        Ok(self.cgroup(pid)?.and_then(|text| container_of(&text)))
    }

    /// Whose a process is, read from its cgroup; `None` when it is gone.
    pub fn home(&self, pid: Pid) -> io::Result<Option<Home>> {
        Ok(self.cgroup(pid)?.map(|text| home_of(&text)))
    }

    fn cgroup(&self, pid: Pid) -> io::Result<Option<String>> {
        let bytes = present(fs::read(self.file(pid, "cgroup")))?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// All processes, in no order.
    pub fn pids(&self) -> io::Result<Vec<Pid>> {
        let entries = fs::read_dir(&self.root)?;
        Ok(entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter_map(Pid::new)
            .collect())
    }

    fn file(&self, pid: Pid, name: &str) -> PathBuf {
        self.root.join(pid.to_string()).join(name)
    }
}

/// `None` when the process is gone.
fn present<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    let gone = |error: &io::Error| {
        error.kind() == io::ErrorKind::NotFound
            || error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
    };
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
