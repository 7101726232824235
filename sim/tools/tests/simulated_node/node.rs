//! A simulated node of a test's own, and the programs on it.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use mpshare_sim_state::shm::SHM_ENV;
use mpshare_sim_state::{ProcId, ProcessKind, SIM_DIR_ENV, SimGpu, SimProcess, SimState, Store};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const T4: &str = "GPU-7a51b0c3-1111-4a4a-8b8b-000000000001";
pub(crate) const V100: &str = "GPU-cb1213a3-2222-4a4a-8b8b-000000000002";
pub(crate) const A100: &str = "GPU-0f3e9a11-3333-4a4a-8b8b-000000000003";

/// How long a condition may take before a test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a program left behind.
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Outcome {
    /// The last line of standard output as JSON.
    pub(crate) fn json(&self) -> Value {
        let line = self.stdout.lines().last().expect("a line of output");
        serde_json::from_str(line).expect("JSON")
    }
}

/// A node with a T4, a V100 and an A100, in a temporary directory.
pub(crate) struct Node {
    dir: TempDir,
    pub(crate) store: Store,
}

impl Node {
    pub(crate) fn new() -> Self {
        let gpus = [("t4", T4), ("v100", V100), ("a100", A100)];
        let gpus = gpus.iter().zip(0..);
        let gpus = gpus.map(|((model, uuid), index)| SimGpu::of_model(model, index, uuid).unwrap());
        let state = SimState { gpus: gpus.collect(), ..SimState::default() };
        let dir = TempDir::new().unwrap();
        let store = Store::create(dir.path().join("sim"), &state).unwrap();
        fs::create_dir(dir.path().join("shm")).unwrap();
        let lib = dir.path().join("lib");
        fs::create_dir(&lib).unwrap();
        for (file, name) in
            [("libnvidia_ml_sim.so", "libnvidia-ml.so.1"), ("libcuda_sim.so", "libcuda.so.1")]
        {
            symlink(built(file), lib.join(name)).unwrap();
        }
        Self { dir, store }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Changes the state under its lock.
    pub(crate) fn change(&self, change: impl FnOnce(&mut SimState)) {
        self.store.update(change).unwrap();
    }

    /// Puts the test itself on a card.
    pub(crate) fn occupy(&self, gpu: &str, kind: ProcessKind, name: &str, used_mib: u64) {
        self.change(|state| state.processes.push(process(gpu, kind, name, used_mib)));
    }

    /// Raises an Xid as the driver does.
    pub(crate) fn raise_xid(&self, gpu: &str, xid: u32) {
        self.change(|state| {
            state.sequence += 1;
            let sequence = state.sequence;
            let card = state.gpus.iter_mut().find(|card| card.uuid == gpu).unwrap();
            card.xids.push(mpshare_sim_state::Xid { sequence, xid });
        });
    }

    /// A program with the node's libraries and nothing of CUDA or MPS from outside.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", build_dir())
            .env(SHM_ENV, self.path().join("shm"))
            .env("LD_LIBRARY_PATH", self.path().join("lib"))
            .env(SIM_DIR_ENV, self.store.dir());
        command
    }

    /// Runs a program to its end.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> Outcome {
        outcome(self.command(program).args(arguments))
    }
}

/// An entry for a process that lives as long as the test does: the test itself.
pub(crate) fn process(gpu: &str, kind: ProcessKind, name: &str, used_mib: u64) -> SimProcess {
    SimProcess {
        id: ProcId::current(),
        uid: 0,
        name: name.to_owned(),
        gpu: gpu.to_owned(),
        kind,
        used_mib,
        limit_mib: None,
        percent_tenths: 1000,
        sticky_error: None,
    }
}

/// Runs a command to its end.
pub(crate) fn outcome(command: &mut Command) -> Outcome {
    let output = command.output().unwrap();
    Outcome {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A library or program that cargo has built beside this test.
pub(crate) fn built(name: &str) -> PathBuf {
    let path = build_dir().join(name);
    assert!(
        path.exists(),
        "`{}` is missing\nhint: `cargo build -p mpshare-sim-nvml -p mpshare-sim-cuda -p mpshare-sim-mps`",
        path.display()
    );
    path
}

/// Where cargo puts what it builds; tests are in `deps` below it.
pub(crate) fn build_dir() -> PathBuf {
    let test = env::current_exe().unwrap();
    test.parent().and_then(Path::parent).unwrap().to_path_buf()
}

/// Waits until `ready` yields something.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}
