//! Waits for the death of daemons and servers without asking again and again: one thread for all.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::{Errno, read, write};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tracing::error;

use crate::worker::Command;

/// Takes orders to tell of a death.
#[derive(Debug, Clone)]
pub(crate) struct DeathWatch {
    orders: Sender<Order>,
    /// Wakes the thread, which can't wait for a channel and for processes at once.
    bell: Arc<OwnedFd>,
}

/// Whose death to wait for, and whom to tell.
#[derive(Debug)]
struct Order {
    pid: i32,
    handle: OwnedFd,
    worker: Sender<Command>,
}

impl DeathWatch {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (orders, received) = mpsc::channel();
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let heard = Arc::clone(&bell);
        thread::Builder::new().name("deaths".to_owned()).spawn(move || {
            if let Err(error) = wait(&received, &heard) {
                error!(%error, "deaths of daemons can't be waited for, they are polled");
            }
        })?;
        Ok(Self { orders, bell })
    }

    /// Sends [`Command::Died`] to the worker when the process ends, at once if it has.
    pub(crate) fn tell(&self, pid: i32, worker: Sender<Command>) -> io::Result<()> {
        let process = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
        let handle = match pidfd_open(process, PidfdFlags::empty()) {
            Ok(handle) => handle,
            Err(Errno::SRCH) => {
                // A worker that is gone has nobody to tell.
                drop(worker.send(Command::Died(pid)));
                return Ok(());
            }
            Err(errno) => return Err(errno.into()),
        };
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        self.orders.send(Order { pid, handle, worker }).map_err(gone)?;
        write(&self.bell, &1_u64.to_ne_bytes())?;
        Ok(())
    }
}

fn wait(received: &Receiver<Order>, bell: &OwnedFd) -> io::Result<()> {
    let mut orders: Vec<Order> = Vec::new();
    loop {
        orders.extend(received.try_iter());
        let handles: Vec<BorrowedFd<'_>> =
            orders.iter().map(|order| order.handle.as_fd()).collect();
        let ended = ready(bell.as_fd(), &handles)?;
        // What counts is that the bell is silent before orders are taken again.
        match read(bell, &mut [0_u8; 8]) {
            Ok(_) | Err(Errno::AGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut ended = ended.into_iter();
        orders.retain(|order| {
            let is_over = ended.next().unwrap_or(false);
            if is_over {
                // A worker that is gone has nobody to tell.
                drop(order.worker.send(Command::Died(order.pid)));
            }
            !is_over
        });
    }
}

/// Blocks until the bell rings or a process ends; which of the processes have.
fn ready(bell: BorrowedFd<'_>, handles: &[BorrowedFd<'_>]) -> io::Result<Vec<bool>> {
    let all = std::iter::once(&bell).chain(handles);
    let mut polled: Vec<PollFd<'_>> =
        all.map(|handle| PollFd::from_borrowed_fd(*handle, PollFlags::IN)).collect();
    loop {
        match poll(&mut polled, None) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(polled.iter().skip(1).map(|handle| !handle.revents().is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use std::process::Command as Program;
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_death_is_told_to_the_worker_that_asked() {
        let watch = DeathWatch::start().unwrap();
        let sleeper = || Program::new("sleep").arg("600").spawn().unwrap();
        let (mut first, mut second) = (sleeper(), sleeper());
        let (tell, told) = mpsc::channel();
        let pid = |child: &std::process::Child| i32::try_from(child.id()).unwrap();
        for child in [&first, &second] {
            watch.tell(pid(child), tell.clone()).unwrap();
        }
        second.kill().unwrap();
        let deadline = Duration::from_secs(10);
        assert_eq!(told.recv_timeout(deadline), Ok(Command::Died(pid(&second))));
        first.kill().unwrap();
        assert_eq!(told.recv_timeout(deadline), Ok(Command::Died(pid(&first))));
        first.wait().unwrap();
        second.wait().unwrap();
    }

    #[test]
    fn a_process_that_is_gone_already_is_told_at_once() {
        let mut child = Program::new("true").spawn().unwrap();
        child.wait().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let (tell, told) = mpsc::channel();
        DeathWatch::start().unwrap().tell(pid, tell).unwrap();
        assert_eq!(told.try_recv(), Ok(Command::Died(pid)));
    }
}
