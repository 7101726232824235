//! Waits for the death of a daemon or server without asking again and again.

use std::io;
use std::sync::mpsc::Sender;
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::worker::Command;

/// Starts a thread that sends [`Command::Died`] when the process ends, and then ends too.
pub(crate) fn watch(pid: i32, worker: Sender<Command>) -> io::Result<()> {
    let process = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
    let handle = pidfd_open(process, PidfdFlags::empty())?;
    thread::Builder::new()
        .name(format!("waits-{pid}"))
        .stack_size(64 * 1024)
        .spawn(move || {
            let mut handles = [PollFd::new(&handle, PollFlags::IN)];
            while poll(&mut handles, None) == Err(rustix::io::Errno::INTR) {}
            // A worker that is gone has nobody to tell.
            drop(worker.send(Command::Died(pid)));
        })?;
    Ok(())
}
