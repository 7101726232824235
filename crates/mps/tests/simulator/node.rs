//! A simulated node with one card, and its daemon.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mpshare_core::{Memory, ThreadPercent, VersionProfile};
use mpshare_mps::{
    ControlDaemon, DaemonFault, DaemonLimits, DaemonSite, OwnSession, Patience, Pid, PinnedLimit,
    PipeDirectory, ProcessDaemon, Programs, Server,
};
use mpshare_sim_state::mps::{AttachError, AttachRequest, Session, attach};
use mpshare_sim_state::{Faults, SimGpu, SimState, Store};
use tempfile::TempDir;

pub(crate) const GPU: &str = "GPU-cb1213a3-d6a4-be7f-0d2c-8b2f6c3c7a11";
const PROGRAMS: [&str; 2] = ["nvidia-cuda-mps-control", "nvidia-cuda-mps-server"];

/// A node of its own for one test. Whatever runs on it ends with it.
pub(crate) struct Node {
    pub(crate) daemon: ProcessDaemon,
    pub(crate) store: Store,
    pub(crate) dir: TempDir,
}

impl Node {
    pub(crate) fn new() -> Self {
        Self::of_driver("555.58.02", VersionProfile::R555)
    }

    pub(crate) fn of_driver(version: &str, profile: VersionProfile) -> Self {
        let dir = tempfile::tempdir().unwrap();
        // Processes of other users go through it.
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let mut state = SimState::default();
        version.clone_into(&mut state.driver.version);
        state.gpus.push(SimGpu::of_model("t4", 0, GPU).unwrap());
        let store = Store::create(dir.path().join("sim"), &state).unwrap();
        let bin = dir.path().join("bin");
        wrap_programs(&bin, store.dir());
        let launcher =
            OwnSession::new(Programs { directory: Some(bin), libraries: Vec::new(), canary: None });
        let daemon = ProcessDaemon::new(site(dir.path(), GPU), Arc::new(launcher), profile)
            .with_patience(patience());
        Self { daemon, store, dir }
    }

    pub(crate) fn bin(&self) -> PathBuf {
        self.dir.path().join("bin")
    }

    pub(crate) fn launcher(&self) -> OwnSession {
        OwnSession::new(Programs {
            directory: Some(self.bin()),
            libraries: Vec::new(),
            canary: None,
        })
    }

    pub(crate) fn site(&self) -> DaemonSite {
        self.daemon.site().clone()
    }

    pub(crate) fn pipe(&self) -> PathBuf {
        self.daemon.site().pipe.path().to_owned()
    }

    pub(crate) fn fault(&self, change: impl FnOnce(&mut Faults)) {
        self.store.update(|state| change(&mut state.faults)).unwrap();
    }

    /// A client of the daemon in this process.
    pub(crate) fn client(&self) -> Session {
        attach(&self.pipe(), &AttachRequest::default()).unwrap()
    }

    /// A client that waits for its server.
    pub(crate) fn waiting_client(&self) -> JoinHandle<Result<Session, AttachError>> {
        let pipe = self.pipe();
        std::thread::spawn(move || attach(&pipe, &AttachRequest::default()))
    }

    /// The one server, once there is one.
    pub(crate) fn server(&self) -> Server {
        until("there is a server", || self.daemon.servers().unwrap().into_iter().next())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Err(error) = self.daemon.kill() {
            // A second panic would hide the first.
            let mut message = String::new();
            writeln!(message, "left behind: {error}").unwrap();
            assert!(std::thread::panicking(), "{message}");
        }
    }
}

pub(crate) fn site(dir: &Path, gpu: &str) -> DaemonSite {
    DaemonSite {
        gpu: gpu.parse().unwrap(),
        pipe: PipeDirectory::new(dir.join("pipe")).unwrap(),
        log: dir.join("log"),
        shm: dir.join("shm"),
    }
}

/// Long enough for a machine with other things to do.
pub(crate) fn patience() -> Patience {
    Patience {
        answer: Duration::from_secs(20),
        turn: Duration::from_secs(40),
        start: Duration::from_secs(20),
        end: Duration::from_secs(20),
    }
}

pub(crate) fn limits(mib: u64, tenths: u32) -> DaemonLimits {
    DaemonLimits {
        memory: PinnedLimit::new(Memory::from_mib(mib)).unwrap(),
        percent: ThreadPercent::from_tenths(tenths).unwrap(),
    }
}

/// Waits for what `look` finds.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: not within 20 s");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) fn me() -> Pid {
    Pid::new(i32::try_from(std::process::id()).unwrap()).unwrap()
}

pub(crate) fn fault<T: std::fmt::Debug>(
    result: Result<T, mpshare_mps::DaemonError>,
) -> DaemonFault {
    *result.unwrap_err().fault
}

/// Programs that belong to one node: the simulator is told by a variable which one that is.
fn wrap_programs(bin: &Path, sim: &Path) {
    fs::create_dir(bin).unwrap();
    for program in PROGRAMS {
        let real = built(program);
        let text = format!("MPSHARE_SIM_DIR='{}' exec '{}' \"$@\"", sim.display(), real.display());
        script(&bin.join(program), &text);
    }
}

/// Writes a program, through another process: one that this process had open for writing, even
/// before, could not be run while another thread's child still holds the copy of the descriptor.
pub(crate) fn script(path: &Path, text: &str) {
    let written = Command::new("sh")
        .args(["-c", "printf %s \"$2\" >\"$1\" && chmod 755 \"$1\"", "sh"])
        .arg(path)
        .arg(format!("#!/bin/sh\n{text}\n"))
        .status();
    assert!(written.unwrap().success(), "{}", path.display());
}

fn built(program: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).unwrap();
    let path = profile.join(program);
    assert!(
        path.exists(),
        "`{}` is missing; run `cargo build -p mpshare-sim-mps` first",
        path.display()
    );
    path
}
