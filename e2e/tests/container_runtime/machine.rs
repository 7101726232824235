//! A machine with two cards, the simulated driver and the container runtime, in a directory.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use mpshare_e2e::driver_root::{self, Model};
use mpshare_e2e::image::{catalogue, pack};
use mpshare_sim_runtime::Config;
use mpshare_sim_state::shm::SHM_ENV;
use mpshare_sim_state::{Driver, SIM_DIR_ENV, SimGpu, SimState, Store};
use serde_json::Value;
use tempfile::TempDir;

use crate::container::Container;

/// Calls `test` on a machine of its own, or says why there is none.
pub(crate) fn on_machine(test: impl FnOnce(&Machine)) {
    let is_root = rustix::process::geteuid().is_root();
    let has_runc = Command::new("runc").arg("--version").output().is_ok();
    match (is_root, has_runc) {
        (false, _) => println!("skipped: only root can make containers"),
        (_, false) => println!("skipped: `runc` isn't installed"),
        (true, true) => test(&Machine::new()),
    }
}

pub(crate) struct Machine {
    dir: TempDir,
    runtime: PathBuf,
    layer: Vec<u8>,
    containers: AtomicU32,
    pub(crate) cards: Vec<SimGpu>,
    pub(crate) store: Store,
}

/// What a container said, and what was logged about it.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) log: String,
}

impl Machine {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let binaries = binaries();
        let cards = driver_root::cards("test", &[Model::T4, Model::V100]);
        let driver_root = dir.path().join("driver");
        driver_root::install(&driver_root, &binaries, &cards).unwrap();
        let driver: Driver = SimState::default().driver;
        let store = driver_root::create_state(&dir.path().join("state"), driver, &cards).unwrap();
        let config = Config {
            state_dir: dir.path().join("state"),
            cdi_dirs: vec![dir.path().join("cdi")],
            ..Config::of_driver_root(driver_root)
        };
        driver_root::write_cdi(&dir.path().join("cdi"), &config, &cards).unwrap();
        let toolkit = dir.path().join("toolkit");
        let runtime = driver_root::install_runtime(&toolkit, &binaries, &config).unwrap();
        let archive = dir.path().join("cuda.tar");
        pack(&catalogue::cuda(&binaries, dir.path()).unwrap(), &archive).unwrap();
        let layer = layer(&archive);
        Self { dir, runtime, layer, containers: AtomicU32::new(0), cards, store }
    }

    /// Bytes of the image.
    pub(crate) fn layer_size(&self) -> usize {
        self.layer.len()
    }

    /// Runs a program in a container to its end.
    pub(crate) fn run(&self, container: &Container, program: &[&str]) -> Said {
        let (mut command, log) = self.command("run", container, program);
        let output = command.output().unwrap();
        said(&output, &log)
    }

    /// Makes a container that isn't started.
    pub(crate) fn create(&self, container: &Container) -> Said {
        let (mut command, log) = self.command("create", container, &["true"]);
        let output = command.output().unwrap();
        said(&output, &log)
    }

    /// Starts a program in a container.
    pub(crate) fn start(&self, container: &Container, program: &[&str]) -> Running {
        let (mut command, _) = self.command("run", container, program);
        let runc = command.stdout(Stdio::null()).spawn().unwrap();
        let pid_file = self.bundle(self.containers.load(Ordering::SeqCst)).join("pid");
        let pid = || fs::read_to_string(&pid_file).ok()?.parse().ok();
        eventually("the container has a process", || pid().is_some());
        Running { runc, pid: pid().unwrap() }
    }

    fn command(&self, what: &str, container: &Container, program: &[&str]) -> (Command, PathBuf) {
        let number = self.containers.fetch_add(1, Ordering::SeqCst) + 1;
        let bundle = self.bundle(number);
        tar::Archive::new(self.layer.as_slice()).unpack(bundle.join("rootfs")).unwrap();
        // Unique on the machine: a container's cgroup has its name.
        let random = self.dir.path().file_name().unwrap().to_str().unwrap();
        let id = format!("mpshare-test-{}-{number}", random.trim_start_matches('.'));
        let specification = container.specification(&id, program);
        fs::write(bundle.join("config.json"), specification.to_string()).unwrap();
        let log = bundle.join("log.json");
        let mut command = Command::new(&self.runtime);
        command.arg("--root").arg(self.dir.path().join("runc")).arg("--log").arg(&log);
        command.args(["--log-format", "json", what, "--bundle"]).arg(&bundle);
        command.arg("--pid-file").arg(bundle.join("pid")).arg(id).stdin(Stdio::null());
        (command, log)
    }

    fn bundle(&self, number: u32) -> PathBuf {
        self.dir.path().join(format!("bundle-{number}"))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let root = self.dir.path().join("runc");
        let containers = fs::read_dir(&root).into_iter().flatten().flatten();
        for container in containers {
            let mut delete = Command::new("runc");
            delete.arg("--root").arg(&root).args(["delete", "--force"]).arg(container.file_name());
            drop(delete.output());
        }
    }
}

/// A control daemon on the machine; it ends with this value, and its servers with it.
pub(crate) struct Mps {
    daemon: Child,
    pipes: PathBuf,
    segments: PathBuf,
}

impl Mps {
    /// Starts it on one card.
    pub(crate) fn start(machine: &Machine, uuid: &str) -> Self {
        let dir = machine.dir.path();
        let (pipes, segments) = (dir.join("pipe"), dir.join("shm"));
        for directory in [&pipes, &segments] {
            fs::create_dir(directory).unwrap();
        }
        // It looks for its servers in `PATH`.
        let programs = dir.join("driver/usr/bin");
        let daemon = Command::new(programs.join("nvidia-cuda-mps-control"))
            .arg("-f")
            .env("PATH", programs)
            .env("CUDA_MPS_PIPE_DIRECTORY", &pipes)
            .env("CUDA_MPS_LOG_DIRECTORY", &pipes)
            .env("CUDA_VISIBLE_DEVICES", uuid)
            .env(SIM_DIR_ENV, dir.join("state"))
            .env(SHM_ENV, &segments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        eventually("the daemon answers", || pipes.join("control").exists());
        Self { daemon, pipes, segments }
    }

    /// What a device plugin adds to a container.
    pub(crate) fn share(&self, container: Container) -> Container {
        container
            .env("CUDA_MPS_PIPE_DIRECTORY", "/mps/pipe")
            .bind(&self.pipes, "/mps/pipe")
            .bind(&self.segments, "/dev/shm")
    }
}

impl Drop for Mps {
    fn drop(&mut self) {
        // A signal to the daemon would leave the server behind.
        let mut front_end = Command::new(binaries().join("nvidia-cuda-mps-control"))
            .env("CUDA_MPS_PIPE_DIRECTORY", &self.pipes)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        drop(writeln!(front_end.stdin.take().unwrap(), "quit -t 5"));
        drop(front_end.wait());
        drop(self.daemon.wait());
    }
}

/// A program in a container; it ends with this value.
pub(crate) struct Running {
    runc: Child,
    pid: i32,
}

impl Running {
    /// The program's PID on this machine.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // runc passes the signal on and stays until the container is gone.
        let runc = rustix::process::Pid::from_child(&self.runc);
        if rustix::process::kill_process(runc, rustix::process::Signal::TERM).is_ok() {
            drop(self.runc.wait());
        }
    }
}

/// Waits until `condition` holds.
pub(crate) fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "not within 20 s: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn said(output: &std::process::Output, log: &Path) -> Said {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Said {
        code: output.status.code(),
        out: text(&output.stdout),
        err: text(&output.stderr),
        log: fs::read_to_string(log).unwrap_or_default(),
    }
}

/// The only layer of an image.
fn layer(archive: &Path) -> Vec<u8> {
    let mut archive = tar::Archive::new(fs::File::open(archive).unwrap());
    let mut entries = archive.entries().unwrap().map(Result::unwrap);
    let mut layer = entries.find(|entry| entry.path().unwrap().ends_with("layer.tar")).unwrap();
    let mut bytes = Vec::new();
    layer.read_to_end(&mut bytes).unwrap();
    bytes
}

/// Where cargo has put the programs: one level above this test.
fn binaries() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().to_path_buf()
}

/// A list of words as JSON.
pub(crate) fn words(words: &[&str]) -> Value {
    words.iter().copied().map(Value::from).collect()
}
