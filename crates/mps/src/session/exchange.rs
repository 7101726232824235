//! Running a front-end: commands in, text out, within a deadline.

use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thiserror::Error;

/// More than any reply is long; what comes after it is dropped.
const LONGEST_REPLY: usize = 1 << 20;

/// What a front-end wrote.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Exchange {
    /// Replies.
    pub stdout: String,
    /// Trouble with the connection.
    pub stderr: String,
    /// It didn't end by itself and was killed.
    pub timed_out: bool,
}

/// A front-end that couldn't be run.
#[derive(Debug, Error)]
#[error("can't run `{program}`")]
pub(crate) struct ExchangeError {
    /// The program.
    pub program: String,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// Runs a front-end with `commands` on its stdin, one a line, until it ends or the deadline.
pub(crate) fn exchange(
    mut front_end: Command,
    commands: &str,
    deadline: Instant,
) -> Result<Exchange, ExchangeError> {
    let program = front_end.get_program().to_string_lossy().into_owned();
    let mut run = || -> io::Result<Exchange> {
        let mut child = front_end
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let exchange = talk(&mut child, commands, deadline);
        // Whatever happened, no child is left behind: it is ours, and not yet waited for.
        if !matches!(&exchange, Ok(exchange) if !exchange.timed_out) {
            child.kill()?;
        }
        let _status = child.wait()?;
        exchange
    };
    run().map_err(|source| ExchangeError { program, source })
}

fn talk(child: &mut Child, commands: &str, deadline: Instant) -> io::Result<Exchange> {
    if let Some(mut stdin) = child.stdin.take() {
        // A front-end that finds no daemon ends without reading.
        match stdin.write_all(commands.as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    let mut out = child.stdout.take().map(Stream::new);
    let mut err = child.stderr.take().map(Stream::new);
    let mut timed_out = false;
    loop {
        let open: Vec<BorrowedFd<'_>> =
            [out.as_ref().and_then(Stream::open), err.as_ref().and_then(Stream::open)]
                .into_iter()
                .flatten()
                .collect();
        if open.is_empty() {
            break;
        }
        let ready = readable(&open, deadline)?;
        if !ready {
            timed_out = true;
            break;
        }
        if let Some(stream) = &mut out {
            stream.read_ready()?;
        }
        if let Some(stream) = &mut err {
            stream.read_ready()?;
        }
    }
    let text = |stream: Option<Stream<_>>| stream.map(Stream::text).unwrap_or_default();
    Ok(Exchange { stdout: text(out), stderr: err.map(Stream::text).unwrap_or_default(), timed_out })
}

/// Waits for one of `fds`; false when the time is up.
fn readable(fds: &[BorrowedFd<'_>], deadline: Instant) -> io::Result<bool> {
    let mut polled: Vec<PollFd<'_>> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    wait(&mut polled, deadline)
}

/// Polls until something is ready; false when the time is up.
pub(crate) fn wait(fds: &mut [PollFd<'_>], deadline: Instant) -> io::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match poll(fds, Some(&timespec(left))) {
            Ok(0) if left.is_zero() => return Ok(false),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// One output of the front-end, read as it comes.
struct Stream<F> {
    source: Option<F>,
    bytes: Vec<u8>,
}

impl<F: Read + AsFd> Stream<F> {
    const fn new(source: F) -> Self {
        Self { source: Some(source), bytes: Vec::new() }
    }

    fn open(&self) -> Option<BorrowedFd<'_>> {
        self.source.as_ref().map(AsFd::as_fd)
    }

    /// Reads once if that doesn't block; closes at the end.
    fn read_ready(&mut self) -> io::Result<()> {
        let Some(source) = &mut self.source else {
            return Ok(());
        };
        if !readable(&[source.as_fd()], Instant::now())? {
            return Ok(());
        }
        let mut buffer = [0; 4096];
        let length = source.read(&mut buffer)?;
        if length == 0 {
            self.source = None;
        }
        if self.bytes.len() < LONGEST_REPLY {
            self.bytes.extend(buffer.iter().take(length));
        }
        Ok(())
    }

    fn text(self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}
