//! A directory with a control daemon in it, and what tests do to that.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mpshare_sim_state::mps::{AttachError, AttachRequest, Session, attach};
use mpshare_sim_state::wire::Packets;
use mpshare_sim_state::{Driver, Faults, ProcId, ProcessKind, SimGpu, SimProcess, SimState, Store};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub(crate) const T4: &str = "GPU-11111111-aaaa-bbbb-cccc-000000000001";
pub(crate) const V100: &str = "GPU-22222222-aaaa-bbbb-cccc-000000000002";

/// A user that isn't root, and needs no entry anywhere.
pub(crate) const SOMEBODY: u32 = 1234;

const DEADLINE: Duration = Duration::from_secs(20);

/// See the module. Dropping it ends the processes that were started in it.
pub(crate) struct Node {
    dir: TempDir,
}

/// What a front-end said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Polls until `condition` gives something.
pub(crate) fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(Instant::now() < deadline, "no {what} after {DEADLINE:?}");
        std::thread::sleep(Duration::from_millis(3));
    }
}

pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    wait_for(what, || condition().then_some(()));
}

pub(crate) fn kill(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Whether tests can act for several users here; if not, says that the test is skipped.
pub(crate) fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: needs root");
    }
    root
}

/// Runs `act` in a thread of another user: sockets carry the credentials of the thread.
pub(crate) fn as_user<T: Send + 'static>(
    uid: u32,
    act: impl FnOnce() -> T + Send + 'static,
) -> std::thread::JoinHandle<T> {
    std::thread::spawn(move || {
        rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(uid)).unwrap();
        act()
    })
}

fn real_program() -> Option<PathBuf> {
    std::env::var_os("MPSHARE_REAL_MPS_CONTROL").map(PathBuf::from)
}

fn real_major() -> Option<String> {
    let version = std::env::var("MPSHARE_REAL_MPS_DRIVER").ok()?;
    version.split('.').next().map(str::to_owned)
}

impl Node {
    /// A node for facts that hold with every driver.
    pub(crate) fn any() -> Self {
        Self::with("555.58.02", &["t4"])
    }

    /// A node with that driver; `None`, with a word, when the real program is of another.
    pub(crate) fn of(driver: &str) -> Option<Self> {
        let major = driver.split('.').next().unwrap();
        if real_program().is_some() && real_major().as_deref() != Some(major) {
            println!("skipped: needs driver {major}");
            return None;
        }
        Some(Self::with(driver, &["t4"]))
    }

    /// A simulated node with one T4.
    pub(crate) fn simulated(driver: &str) -> Option<Self> {
        Self::simulated_with(driver, &["t4"])
    }

    /// A simulated node with those cards; `None`, with a word, when the real program is tested.
    pub(crate) fn simulated_with(driver: &str, models: &[&str]) -> Option<Self> {
        if real_program().is_some() {
            println!("skipped: needs the simulator");
            return None;
        }
        Some(Self::with(driver, models))
    }

    fn with(driver: &str, models: &[&str]) -> Self {
        let dir = tempfile::Builder::new().prefix("mps").tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(dir.path().join("shm")).unwrap();
        fs::set_permissions(dir.path().join("shm"), fs::Permissions::from_mode(0o777)).unwrap();
        let gpus = models.iter().zip([T4, V100]).zip(0..);
        let state = SimState {
            driver: Driver { version: driver.to_owned(), ..SimState::default().driver },
            gpus: gpus
                .map(|((model, uuid), index)| SimGpu::of_model(model, index, uuid).unwrap())
                .collect(),
            ..SimState::default()
        };
        Store::create(dir.path().join("sim"), &state).unwrap();
        Self { dir }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn pipe(&self) -> PathBuf {
        self.dir().join("pipe")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.dir().join("log")
    }

    pub(crate) fn store(&self) -> Store {
        Store::at(self.dir().join("sim"))
    }

    pub(crate) fn inject(&self, change: impl FnOnce(&mut Faults)) {
        self.store().update(|state| change(&mut state.faults)).unwrap();
    }

    /// The control program in this node's environment.
    pub(crate) fn control(&self) -> Command {
        let fake = PathBuf::from(env!("CARGO_BIN_EXE_nvidia-cuda-mps-control"));
        let program = real_program().unwrap_or(fake);
        let programs = program.parent().unwrap().display().to_string();
        let mut command = Command::new(&program);
        command
            .env_clear()
            .env("PATH", format!("{programs}:/usr/bin:/bin"))
            .env("CUDA_MPS_PIPE_DIRECTORY", self.pipe())
            .env("CUDA_MPS_LOG_DIRECTORY", self.log())
            .env("MPSHARE_SIM_DIR", self.dir().join("sim"))
            .env("MPSHARE_SIM_SHM", self.dir().join("shm"))
            .env("MPSHARE_SIM_MPS_SEED", "1")
            .current_dir(self.dir());
        command
    }

    /// Starts the daemon.
    pub(crate) fn start(&self) {
        self.start_with(&["-d"], &[]);
    }

    /// Starts a daemon that heeds all signals. A shell that runs tests in the background has them
    /// ignore SIGINT, which is inherited.
    pub(crate) fn start_heeding_signals(&self) {
        let control = self.control();
        let mut command = Command::new("env");
        command.arg("--default-signal").arg(control.get_program()).arg("-d").env_clear();
        let variables = control.get_envs().filter_map(|(name, value)| Some((name, value?)));
        let said = run(command.envs(variables).current_dir(self.dir()), "");
        assert_eq!(said.code, Some(0), "{said:?}");
    }

    /// Starts the daemon with arguments and more environment.
    pub(crate) fn start_with(&self, arguments: &[&str], environment: &[(&str, &str)]) {
        let environment = environment.iter().copied();
        let said = run(self.control().args(arguments).envs(environment), "");
        assert_eq!(said.code, Some(0), "{said:?}");
    }

    /// One front-end session.
    pub(crate) fn ui(&self, input: &str) -> Said {
        run(&mut self.control(), input)
    }

    /// The output of one front-end session that nothing disturbs.
    pub(crate) fn ask(&self, input: &str) -> String {
        let said = self.ui(input);
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "`{input}`");
        said.out
    }

    pub(crate) fn ask_for_server(&self) {
        assert_eq!(self.ask(&start_server()), "");
    }

    pub(crate) fn control_log(&self) -> String {
        fs::read_to_string(self.log().join("control.log")).unwrap_or_default()
    }

    pub(crate) fn server_log(&self) -> String {
        fs::read_to_string(self.log().join("server.log")).unwrap_or_default()
    }

    /// The daemon that listens, if one does.
    pub(crate) fn daemon(&self) -> Option<i32> {
        let connection = Packets::connect(&self.pipe().join("control")).ok()?;
        Some(connection.peer().unwrap().pid)
    }

    /// Whether nobody holds `control_lock`.
    pub(crate) fn lock_is_free(&self) -> bool {
        let path = self.pipe().join("control_lock");
        let file = File::options().read(true).write(true).open(path).unwrap();
        fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
    }

    /// PID of the server, once there is one.
    pub(crate) fn server(&self) -> i32 {
        wait_for("server", || self.ask("get_server_list\n").trim().parse().ok())
    }

    /// PID of the server, once it is ACTIVE.
    pub(crate) fn active_server(&self) -> i32 {
        let server = self.server();
        wait_until("ACTIVE", || self.status(server) == "ACTIVE\n");
        server
    }

    pub(crate) fn status(&self, server: i32) -> String {
        self.ask(&format!("get_server_status {server}\n"))
    }

    /// Becomes a client, with nothing in the environment.
    pub(crate) fn attach(&self) -> Result<Session, AttachError> {
        attach(&self.pipe(), &request())
    }

    /// A context of this process as a client.
    pub(crate) fn register(&self, session: &Session, uuid: &str) {
        let context = SimProcess {
            id: ProcId::current(),
            uid: 0,
            name: "client".to_owned(),
            gpu: uuid.to_owned(),
            kind: ProcessKind::MpsClient { server: session.server() },
            used_mib: 0,
            limit_mib: None,
            percent_tenths: 1000,
            sticky_error: None,
        };
        self.store().update(|state| state.processes.push(context)).unwrap();
    }

    /// A context of this process without MPS.
    pub(crate) fn register_plain(&self, uuid: &str) {
        let context = SimProcess {
            id: ProcId::current(),
            uid: 0,
            name: "stray".to_owned(),
            gpu: uuid.to_owned(),
            kind: ProcessKind::Plain,
            used_mib: 0,
            limit_mib: None,
            percent_tenths: 1000,
            sticky_error: None,
        };
        self.store().update(|state| state.processes.push(context)).unwrap();
    }

    /// Every process that runs in this node, by its environment.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let pipe = format!("CUDA_MPS_PIPE_DIRECTORY={}/", self.dir().display());
        let belongs = |pid: &i32| {
            let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            String::from_utf8_lossy(&environ).contains(&pipe)
        };
        let names = fs::read_dir("/proc").unwrap().flatten();
        let pids = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(belongs).filter(|pid| ProcId::of(*pid).is_some()).collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The daemon first; it starts servers. It may end by itself meanwhile.
        for pid in self.daemon().into_iter().chain(self.processes()).chain(self.processes()) {
            if let Some(pid) = Pid::from_raw(pid) {
                kill_process(pid, Signal::KILL).ok();
            }
        }
    }
}

/// Runs a program to its end with `input`.
pub(crate) fn run(command: &mut Command, input: &str) -> Said {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One that ends without reading is as good.
    drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    Said {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A client's request with an empty environment.
pub(crate) fn request() -> AttachRequest {
    AttachRequest { name: "./nbody".to_owned(), ..AttachRequest::default() }
}

/// A front-end session that stays open.
pub(crate) struct OpenUi {
    child: std::process::Child,
}

impl OpenUi {
    /// Opens one and sees that it is open.
    pub(crate) fn of(node: &Node) -> Self {
        let mut child =
            node.control().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"get_default_active_thread_percentage\n").unwrap();
        let mut first = [0; 1];
        let out = child.stdout.as_mut().unwrap();
        std::io::Read::read_exact(out, &mut first).unwrap();
        child.stdin = Some(input);
        Self { child }
    }
}

impl Drop for OpenUi {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}

/// The command that starts a server for the own user.
pub(crate) fn start_server() -> String {
    format!("start_server -uid {}\n", rustix::process::geteuid().as_raw())
}
