//! Sessions with the control program as a shell has them: what it is given, what it says. The
//! product's own sessions are in `crates/mps`; here nothing is interpreted.

use std::io::{self, Read as _, Write as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// For how long a session may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a program said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    /// Its exit code; `None` when a signal ended it.
    pub(crate) code: Option<i32>,
    /// Its stdout.
    pub(crate) out: String,
    /// Its stderr.
    pub(crate) err: String,
}

/// Runs a program to its end with `input` on its stdin.
pub(crate) fn run(mut command: Command, input: &str) -> Result<Said> {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("can't start {command:?}"))?;
    let mut stdin = child.stdin.take().context("no stdin")?;
    // One that ends without reading is as good.
    drop(stdin.write_all(input.as_bytes()));
    drop(stdin);
    let (out, err) = (reading(child.stdout.take()), reading(child.stderr.take()));
    let until = Instant::now() + PATIENCE;
    let Some(status) = ended(&mut child, until)? else {
        child.kill()?;
        child.wait()?;
        bail!("no end of a session within {PATIENCE:?}: `{}`", input.escape_debug());
    };
    Ok(Said { code: status.code(), out: read(&out)?, err: read(&err)? })
}

fn ended(child: &mut Child, until: Instant) -> io::Result<Option<ExitStatus>> {
    while Instant::now() < until {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(None)
}

/// Reads a pipe to its end in a thread of its own. A daemon that keeps the pipe open doesn't hold
/// anybody up: what was said by then is taken.
fn reading(pipe: Option<impl io::Read + Send + 'static>) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            drop(pipe.read_to_end(&mut bytes));
        }
        drop(sender.send(bytes));
    });
    receiver
}

fn read(bytes: &mpsc::Receiver<Vec<u8>>) -> Result<String> {
    match bytes.recv_timeout(Duration::from_secs(2)) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(RecvTimeoutError::Timeout) => bail!("something holds the output of a session open"),
        Err(RecvTimeoutError::Disconnected) => Ok(String::new()),
    }
}

/// A session that stays open; it ends with the value.
pub(crate) struct Open(Child);

impl Open {
    /// Opens one and waits until it has answered once.
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let asked = b"get_default_active_thread_percentage\n";
        child.stdin.as_mut().context("no stdin")?.write_all(asked)?;
        let mut first = [0_u8; 1];
        child.stdout.as_mut().context("no stdout")?.read_exact(&mut first)?;
        Ok(Self(child))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
