//! A watch of the pods that have no node: one that gets a node leaves it, told as deleted.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::requests::Requests;

/// How long a round may take.
const PATIENCE: Duration = Duration::from_mins(3);

/// The watch, which goes on where it was when the API server ends it: it does so with one that
/// doesn't keep up, which happens with a thousand events per second on two cores.
pub(super) struct Waiting {
    requests: Requests,
    curl: Child,
    lines: BufReader<ChildStdout>,
    version: String,
    deadline: Instant,
}

impl Waiting {
    /// Begins with the pods that wait now, as additions.
    pub(super) fn follow(requests: Requests) -> Result<Self> {
        let version = "0".to_owned();
        let (curl, lines) = begin(&requests, &version)?;
        let deadline = Instant::now() + PATIENCE;
        Ok(Self { requests, curl, lines, version, deadline })
    }

    /// Waits for the next event of a type.
    pub(super) fn until(&mut self, kind: &str) -> Result<()> {
        let start = format!(r#"{{"type":"{kind}""#);
        loop {
            ensure!(Instant::now() < self.deadline, "no more in {} s", PATIENCE.as_secs());
            let mut line = String::new();
            if self.lines.read_line(&mut line)? == 0 {
                self.curl.wait()?;
                (self.curl, self.lines) = begin(&self.requests, &self.version)?;
                continue;
            }
            let (_, version) = line.split_once(r#""resourceVersion":""#).unwrap_or_default();
            if let Some((version, _)) = version.split_once('"') {
                version.clone_into(&mut self.version);
            }
            if line.starts_with(&start) {
                return Ok(());
            }
        }
    }
}

fn begin(requests: &Requests, version: &str) -> Result<(Child, BufReader<ChildStdout>)> {
    let mut curl = requests.waiting_pods(version).stdout(Stdio::piped()).spawn()?;
    let lines = BufReader::new(curl.stdout.take().context("no output")?);
    Ok((curl, lines))
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        drop(self.curl.kill());
        drop(self.curl.wait());
    }
}
