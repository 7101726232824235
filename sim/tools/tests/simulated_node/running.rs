//! A `cuda-sample` in the background, followed through its report.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::node::{Node, Outcome, eventually, outcome};

pub(crate) const SAMPLE: &str = env!("CARGO_BIN_EXE_cuda-sample");

/// The events in a report.
pub(crate) fn events(report: &std::path::Path) -> Vec<Value> {
    let text = fs::read_to_string(report).unwrap_or_default();
    let lines = text.lines().filter(|line| line.ends_with('}'));
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The events of one kind.
pub(crate) fn of_kind(events: &[Value], kind: &str) -> Vec<Value> {
    events.iter().filter(|event| event["event"] == kind).cloned().collect()
}

/// Runs the sample to its end and returns what it reported, too.
pub(crate) fn sample(node: &Node, mut command: Command, arguments: &str) -> (Outcome, Vec<Value>) {
    let report = unused(node);
    command.args(arguments.split_whitespace()).arg("--report").arg(&report);
    let outcome = outcome(&mut command);
    (outcome, events(&report))
}

/// A sample that runs; it is ended with the test.
pub(crate) struct Running {
    process: Option<Child>,
    report: PathBuf,
}

impl Running {
    /// Starts a sample; returns once `count` processes of it hold what they were told to.
    pub(crate) fn holding(
        node: &Node,
        mut command: Command,
        arguments: &str,
        count: usize,
    ) -> Self {
        let report = unused(node);
        command.args(arguments.split_whitespace()).arg("--report").arg(&report);
        command.args(["--hold", "forever"]).stdout(Stdio::null()).stderr(Stdio::piped());
        let running = Self { process: Some(command.spawn().unwrap()), report };
        eventually("the samples hold", || (running.events("holding").len() == count).then_some(()));
        running
    }

    pub(crate) fn events(&self, kind: &str) -> Vec<Value> {
        of_kind(&events(&self.report), kind)
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.process.as_ref().unwrap().id()).unwrap()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid()).unwrap(), signal).unwrap();
    }

    /// Waits for the end by itself: the exit code, and the last line on standard error.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let output = self.process.take().unwrap().wait_with_output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), errors.lines().last().unwrap_or_default().to_owned())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }
}

fn unused(node: &Node) -> PathBuf {
    let reports = fs::read_dir(node.path()).unwrap().count();
    let report = node.path().join(format!("report-{reports}"));
    fs::write(&report, "").unwrap();
    report
}
