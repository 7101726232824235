//! Clients as checks have them: processes that are told what to do, each step with a deadline. One
//! that is dropped ends.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use mpshare_mps::Pid;
use serde_json::Value;

use crate::itself;
use crate::protocol::{Reply, Request};

/// For how long the first step may take: a driver that nobody has used starts the card then.
const OPENING: Duration = Duration::from_mins(1);

/// For how long any other step may take.
const STEP: Duration = Duration::from_secs(30);

/// For how long a client may take to end by itself.
const ENDING: Duration = Duration::from_secs(5);

/// A client.
pub(crate) struct Client {
    child: Child,
    input: Option<ChildStdin>,
    replies: Receiver<String>,
    pid: Pid,
}

/// The driver refused what a client was told to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// In which function.
    pub(crate) call: String,
    /// The `CUresult`.
    pub(crate) code: i32,
    /// Both, and the result's name.
    pub(crate) message: String,
}

impl Client {
    /// Starts one that has no part of the card yet, with these variables.
    pub(crate) fn start(variables: &[(&str, &str)]) -> Result<Self> {
        let mut command = itself::part("client");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("CUDA_")) {
                command.env_remove(name);
            }
        }
        // Compiled programs would stay in the home directory.
        command.env("CUDA_CACHE_DISABLE", "1");
        let mut child = command.envs(variables.iter().copied()).spawn().context("no client")?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::new).context("no process id")?;
        let output = child.stdout.take().context("no output")?;
        let (sender, replies) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { input: child.stdin.take(), child, replies, pid })
    }

    /// Its process.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Has it do something; fails unless it is done.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<Value> {
        match self.attempt(request)? {
            Ok(value) => Ok(value),
            Err(refusal) => bail!("client {}: {}", self.pid, refusal.message),
        }
    }

    /// Has it do something that the driver may refuse.
    pub(crate) fn attempt(&mut self, request: &Request) -> Result<Result<Value, Refusal>> {
        self.tell(request)?;
        self.hear(match request {
            Request::Open => OPENING,
            _ => STEP,
        })
    }

    /// Tells it what to do, without waiting.
    pub(crate) fn tell(&mut self, request: &Request) -> Result<()> {
        let input = self.input.as_mut().context("its stdin is closed")?;
        let line = serde_json::to_string(request)?;
        writeln!(input, "{line}").with_context(|| format!("client {} has ended", self.pid))
    }

    /// Waits for what came of the oldest thing that it was told.
    pub(crate) fn hear(&mut self, patience: Duration) -> Result<Result<Value, Refusal>> {
        let line = self.replies.recv_timeout(patience);
        let line = line.with_context(|| format!("client {}: nothing heard of it", self.pid))?;
        match serde_json::from_str(&line)? {
            Reply::Done(value) => Ok(Ok(value)),
            Reply::Refused { call, code, message } => Ok(Err(Refusal { call, code, message })),
            Reply::Failed(message) => bail!("client {}: {message}", self.pid),
        }
    }

    /// Ends it and waits for that.
    pub(crate) fn end(mut self) {
        self.finish();
    }

    fn finish(&mut self) {
        drop(self.input.take());
        let until = Instant::now() + ENDING;
        while !self.has_ended() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        // Both fail only when it is gone already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.finish();
    }
}
