//! A control daemon of a test's own, for one card.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use mpshare_sim_state::ProcessKind;
use rustix::process::{Pid, Signal, kill_process};

use crate::node::{Node, built, eventually};

/// A control daemon and whatever servers it has started.
pub(crate) struct Mps<'node> {
    node: &'node Node,
    daemon: Child,
    pipe: PathBuf,
}

impl<'node> Mps<'node> {
    /// Starts a daemon for one card; returns once it answers.
    pub(crate) fn start(node: &'node Node, gpu: &str) -> Self {
        let pipe = node.path().join("pipe");
        std::fs::create_dir(&pipe).unwrap();
        let mut command = control(node, &pipe);
        command.env("CUDA_VISIBLE_DEVICES", gpu).arg("-f");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mps = Self { node, daemon: command.spawn().unwrap(), pipe };
        eventually("the control daemon answers", || {
            let answer = mps.ask("get_default_active_thread_percentage");
            (answer == "100.0\n").then_some(())
        });
        mps
    }

    /// Asks the daemon through its front-end.
    pub(crate) fn ask(&self, question: &str) -> String {
        let mut command = control(self.node, &self.pipe);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut front_end = command.spawn().unwrap();
        // Without a daemon it doesn't read.
        drop(writeln!(front_end.stdin.take().unwrap(), "{question}"));
        let output = front_end.wait_with_output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// A program that is to find this daemon.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = self.node.command(program);
        command.env("CUDA_MPS_PIPE_DIRECTORY", &self.pipe);
        command
    }

    /// PIDs of the servers that are on a card.
    pub(crate) fn servers(&self) -> Vec<i32> {
        let own = i32::try_from(std::process::id()).unwrap();
        let processes = self.node.store.read().unwrap().processes.into_iter();
        let servers = processes.filter(|process| process.kind == ProcessKind::MpsServer);
        servers.map(|process| process.id.pid).filter(|pid| *pid != own).collect()
    }

    /// Kills the servers as the kernel does when memory runs out.
    pub(crate) fn kill_servers(&self) {
        for pid in self.servers() {
            kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        }
    }
}

impl Drop for Mps<'_> {
    fn drop(&mut self) {
        self.kill_servers();
        self.daemon.kill().unwrap();
        self.daemon.wait().unwrap();
    }
}

fn control(node: &Node, pipe: &std::path::Path) -> Command {
    let mut command = node.command(built("nvidia-cuda-mps-control").to_str().unwrap());
    command.env("CUDA_MPS_PIPE_DIRECTORY", pipe);
    command.env("CUDA_MPS_LOG_DIRECTORY", node.path().join("log"));
    command
}
