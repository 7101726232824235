//! A process that can be waited for and killed without ever meeting another one of the same id.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::Proc;
use crate::pid::{Pid, ProcessId};
use crate::session::wait;

/// A pidfd: readable once the process has ended.
#[derive(Debug)]
pub struct ProcessHandle {
    id: ProcessId,
    fd: OwnedFd,
}

impl ProcessHandle {
    /// Takes hold of a living process; `None` when there is none.
    pub fn open(proc: &Proc, pid: Pid) -> io::Result<Option<Self>> {
        let Some(raw) = pid.rustix() else {
            return Ok(None);
        };
        let fd = match pidfd_open(raw, PidfdFlags::empty()) {
            Ok(fd) => fd,
            Err(Errno::SRCH) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        // Read after the handle was taken, so both are about the same process.
        Ok(proc.identify(pid)?.map(|id| Self { id, fd }))
    }

    /// Takes hold of exactly this process; `None` when it is gone, whoever has its id now.
    pub fn open_exact(proc: &Proc, id: ProcessId) -> io::Result<Option<Self>> {
        Ok(Self::open(proc, id.pid)?.filter(|handle| handle.id == id))
    }

    /// Who it is.
    pub const fn id(&self) -> ProcessId {
        self.id
    }

    /// Waits until the process has ended; false when it still runs at the deadline.
    pub fn wait(&self, deadline: Instant) -> io::Result<bool> {
        let fd = PollFd::new(&self.fd, PollFlags::IN);
        wait(&mut [fd], deadline)
    }

    /// Sends SIGKILL; one that is gone already is fine.
    pub fn kill(&self) -> io::Result<()> {
        self.send(Signal::KILL)
    }

    /// Sends SIGTERM; one that is gone already is fine.
    pub fn ask_to_end(&self) -> io::Result<()> {
        self.send(Signal::TERM)
    }

    fn send(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.fd, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for ProcessHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
