//! One machine of the cluster: namespaces of its own, and the process that is their PID 1.
//!
//! With a PID namespace of its own a machine has what a real one has: `/proc/1/ns/mnt` is the
//! host's mount namespace, its `/run` starts empty, and when PID 1 ends everything on it ends at
//! once, as when the power fails. It also ends when this process ends, however it does.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// What [`init`](super::init) prints when the machine is up.
pub(super) const READY: &str = "ready";

/// A machine that is up.
#[derive(Debug)]
pub struct Host {
    name: String,
    /// `unshare`, which lives as long as its child, PID 1.
    shell: Child,
    pid: i32,
    logs: PathBuf,
    processes: BTreeMap<String, Process>,
}

/// A long-running program on a machine.
#[derive(Debug)]
struct Process {
    /// `nsenter`, which lives as long as the program, its child.
    entry: Child,
    pid: i32,
}

impl Host {
    /// Starts a machine. Each of `binds` is a directory and where the machine sees it.
    pub fn boot(name: &str, binds: &[(PathBuf, &str)], logs: &Path) -> Result<Self> {
        let program = std::env::current_exe().context("who am I")?;
        let log = logs.join(format!("{name}-init.log"));
        let log = File::options().create(true).append(true).open(log)?;
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "unshare", "--kill-child=KILL", "--fork"])
            .args(["--net", "--mount", "--pid", "--mount-proc", "--propagation", "private"])
            .arg(program)
            .arg("init")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log);
        for (from, to) in binds {
            command.arg("--bind").arg(from).arg(to);
        }
        let mut shell = command.spawn().context("can't run setpriv (util-linux)")?;
        let output = shell.stdout.take().context("no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        ensure!(line.trim_end() == READY, "machine `{name}` didn't come up");
        let pid = child_of(&shell)?;
        Ok(Self {
            name: name.to_owned(),
            shell,
            pid,
            logs: logs.to_owned(),
            processes: BTreeMap::new(),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its PID 1, as seen from here.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// A path of the machine, as seen from here.
    pub fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.pid))
    }

    /// A command that will run on the machine.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg("-t").arg(self.pid.to_string()).args(["-n", "-m", "-p", "--"]).arg(program);
        command.stdin(Stdio::null());
        command
    }

    /// Runs a command on the machine to its end and returns what it printed.
    pub fn run<S: AsRef<OsStr>>(&self, program: &str, args: &[S]) -> Result<String> {
        let mut command = self.command(program);
        output_of(command.args(args))
    }

    /// Starts a program that goes on; its output is appended to a log file of that name.
    pub fn start(&mut self, name: &str, command: &mut Command) -> Result<()> {
        let log = self.logs.join(format!("{}-{name}.log", self.name));
        let log = File::options().create(true).append(true).open(&log)?;
        let entry = command
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("can't start `{name}`"))?;
        let pid = child_of(&entry)?;
        self.processes.insert(name.to_owned(), Process { entry, pid });
        Ok(())
    }

    /// The programs that [`Self::start`] started, with their processes as seen from here.
    pub fn processes(&self) -> impl Iterator<Item = (&str, i32)> {
        self.processes.iter().map(|(name, process)| (name.as_str(), process.pid))
    }

    /// Ends a program that [`Self::start`] started and waits for its end.
    pub fn end(&mut self, name: &str, signal: Signal) -> Result<()> {
        let mut process =
            self.processes.remove(name).with_context(|| format!("`{name}` wasn't started"))?;
        // Until its parent is gone too, its number is nobody else's.
        if process.entry.try_wait()?.is_none() {
            // Fails only when it has ended by itself.
            drop(signal_process(process.pid, signal));
            process.entry.wait()?;
        }
        Ok(())
    }

    /// The power fails: everything on the machine ends at once. A second time it does nothing.
    pub fn power_off(&mut self) {
        // Afterwards the number of PID 1 may be another process's.
        if matches!(self.shell.try_wait(), Ok(None)) {
            // Fails only when it has ended already.
            drop(signal_process(self.pid, Signal::KILL));
            drop(self.shell.wait());
        }
        for process in self.processes.values_mut() {
            drop(process.entry.wait());
        }
        self.processes.clear();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.power_off();
    }
}

/// Runs a command to its end and returns what it printed.
pub(crate) fn output_of(command: &mut Command) -> Result<String> {
    let what = format!("{command:?}");
    let output = command.output().with_context(|| format!("can't run {what}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("{what}: {}\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(text)
}

/// Sends a signal to a process that this one started.
pub(crate) fn signal_process(pid: i32, signal: Signal) -> Result<()> {
    let pid = Pid::from_raw(pid).context("no PID")?;
    kill_process(pid, signal).with_context(|| format!("can't signal {}", pid.as_raw_nonzero()))
}

/// The one child of a process that enters namespaces and forks; it comes at once.
fn child_of(parent: &Child) -> Result<i32> {
    let parent = i32::try_from(parent.id())?;
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        if let Some(pid) = children(parent).first() {
            return Ok(*pid);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    bail!("process {parent} has no child")
}

fn children(parent: i32) -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| parent_of(*pid) == Some(parent)).collect()
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}
