//! Log lines in the real programs' format (facts/mps.md 7) and where they go.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use jiff::Zoned;
use rustix::fs::{Mode, OFlags};

/// One line, with its line end: `[2026-11-30 05:33:04.867 Control  7412] text`.
pub(crate) fn line(now: &Zoned, role: &str, pid: u32, text: &str) -> String {
    format!("[{} {role} {pid:>5}] {text}\n", now.strftime("%Y-%m-%d %H:%M:%S%.3f"))
}

/// Where a daemon's lines go.
#[derive(Debug)]
pub(crate) enum Sink {
    /// A log file.
    File(Mutex<File>),
    /// Standard output (`-f`).
    Stdout,
    /// No log directory.
    Nowhere,
}

impl Sink {
    /// Writes finished lines. A full disk loses them, as it does for the real program.
    pub(crate) fn write(&self, text: &[u8]) {
        let written = match self {
            Self::File(file) => file.lock().unwrap_or_else(PoisonError::into_inner).write_all(text),
            Self::Stdout => {
                let mut out = std::io::stdout().lock();
                out.write_all(text).and_then(|()| out.flush())
            }
            Self::Nowhere => Ok(()),
        };
        drop(written);
    }
}

/// The daemon's own log.
#[derive(Debug)]
pub(crate) struct ControlLog {
    sink: Sink,
}

impl ControlLog {
    pub(crate) fn new(sink: Sink) -> Self {
        Self { sink }
    }

    /// Logs one line.
    pub(crate) fn say(&self, text: impl AsRef<str>) {
        let line = line(&Zoned::now(), "Control", std::process::id(), text.as_ref());
        self.sink.write(line.as_bytes());
    }
}

/// A server's log: the FIFO that the daemon copies to `server.log`.
#[derive(Debug)]
pub(crate) struct ServerLog {
    fifo: Option<File>,
    role: &'static str,
}

impl ServerLog {
    /// Opens the FIFO of a pipe directory; without one, lines are lost.
    pub(crate) fn open(pipe_dir: &Path) -> Self {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fifo = rustix::fs::open(pipe_dir.join("log"), flags, Mode::empty());
        // `Other` until the server knows what kind it is.
        Self { fifo: fifo.ok().map(File::from), role: "Other" }
    }

    /// The role that the following lines carry.
    pub(crate) fn become_role(&mut self, role: &'static str) {
        self.role = role;
    }

    /// Logs one line.
    pub(crate) fn say(&self, text: impl AsRef<str>) {
        let line = line(&Zoned::now(), self.role, std::process::id(), text.as_ref());
        if let Some(mut fifo) = self.fifo.as_ref() {
            drop(fifo.write_all(line.as_bytes()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_milliseconds_and_the_pid_right_aligned_to_five() {
        let now: Zoned = "2026-11-30T05:33:04.867[UTC]".parse().unwrap();
        assert_eq!(
            line(&now, "Control", 7412, "Accepting connection..."),
            "[2026-11-30 05:33:04.867 Control  7412] Accepting connection...\n"
        );
    }
}
