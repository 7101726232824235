//! Copies what servers write into the `log` FIFO to `server.log`.

use std::io::{BufRead, BufReader, Write};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use super::Daemon;

/// The daemon's own last line in the FIFO: all before it has been copied then.
const END: &[u8] = b"\x04\n";

impl Daemon {
    /// Starts copying. The thread ends after [`Daemon::end_server_log`].
    pub(super) fn copy_server_log(self: &Arc<Self>) -> Option<JoinHandle<()>> {
        let fifo = self.files.fifo.as_ref()?.try_clone().ok()?;
        let daemon = Arc::clone(self);
        Some(thread::spawn(move || {
            let mut lines = BufReader::new(fifo);
            let mut line = Vec::new();
            while matches!(lines.read_until(b'\n', &mut line), Ok(1..)) && line != END {
                daemon.files.server_log.write(&line);
                line.clear();
            }
        }))
    }

    /// Lets the copying end once it is through.
    pub(super) fn end_server_log(&self) {
        if let Some(mut fifo) = self.files.fifo.as_ref() {
            drop(fifo.write_all(END));
        }
    }
}
