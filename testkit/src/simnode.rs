//! A whole node that isn't there: simulated cards, a fake kubelet, API server and scheduler, and
//! the product's three real processes on them; its scheduler extender as a fourth where it's wanted.
//!
//! Tests of the whole, the demo and the benchmarks start from here. Everything lies in one
//! temporary directory; when the node is dropped, everything that ran on it is ended and the
//! directory removed.

mod bridge;
mod leftovers;
mod port;
mod programs;
mod role;
mod scheduler;
mod stopping;
mod watchdog;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use mpshare_api::names::MEMORY_RESOURCE;
use mpshare_api::{MpsRoot, NodeStatus, read_document};
use mpshare_sim_state::shm::SHM_ENV;
use mpshare_sim_state::{SIM_DIR_ENV, SimGpu, SimState, Store};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::task::JoinHandle;

pub use programs::{ProgramsError, built};
pub use role::Role;
pub use scheduler::{CountedBy, ManagedResource};
pub(crate) use stopping::signal;

use crate::fakekube::FakeKube;
use crate::fakekubelet::{FakeKubelet, Image, Options};
use port::Port;
use role::RoleProcess;
use scheduler::Extender;
use watchdog::Watchdog;

/// The node's name.
pub const NODE: &str = "gpu-node";

/// The image of the ACK document's Job.
const ACK_IMAGE: &str =
    "registry.cn-hangzhou.aliyuncs.com/ai-samples/gpushare-sample:tensorflow-1.5";

/// How a node is set up.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Where the built programs are, see [`built`].
    pub programs: PathBuf,
    /// Cards: a model that [`SimGpu::of_model`] knows, and a UUID.
    pub cards: Vec<(&'static str, &'static str)>,
    /// The driver's version.
    pub driver: &'static str,
    /// How often the kubelet's status reaches the Node object (10 s on a real node).
    pub sync_every: Duration,
    /// Name of the config for a node without a label.
    pub default_config: Option<&'static str>,
    /// Seed of the kubelet's random choices.
    pub seed: u64,
    /// Further arguments of the supervisor.
    pub supervisor: Vec<&'static str>,
    /// Where daemons are launched.
    pub launch: Launch,
    /// The resources that the scheduler leaves to the product's extender; without any there is no
    /// extender.
    pub managed: Vec<ManagedResource>,
}

/// Where the supervisor launches MPS daemons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launch {
    /// Beside itself.
    Here,
    /// As from inside a container: through the host's mount namespace (this machine's), into a
    /// cgroup and with a `/dev/shm` of the card. Needs root.
    Host,
}

impl Setup {
    /// A T4 and a V100 with a 555 driver.
    pub fn two_cards() -> Self {
        Self {
            programs: built(),
            cards: vec![
                ("t4", "GPU-cb1213a3-d6a4-be7f-0d2c-8b2f6c3c7a11"),
                ("v100", "GPU-5f3c9a20-41d7-6b0e-9c88-27e1d4a0b6f2"),
            ],
            driver: "555.58.02",
            sync_every: Duration::from_millis(200),
            default_config: None,
            seed: 1,
            supervisor: Vec::new(),
            launch: Launch::Here,
            managed: Vec::new(),
        }
    }

    /// One T4 of 15 GiB whose memory the product's extender hands out, as in the ACK document.
    pub fn memory() -> Self {
        let mut setup = Self::two_cards();
        setup.cards.truncate(1);
        setup.managed =
            vec![ManagedResource { name: MEMORY_RESOURCE, counted_by: CountedBy::Extender }];
        setup
    }
}

/// A running node.
pub struct SimNode {
    roles: BTreeMap<Role, RoleProcess>,
    bridge: JoinHandle<()>,
    scheduler: JoinHandle<()>,
    kubelet: Arc<FakeKubelet>,
    kube: Arc<FakeKube>,
    store: Store,
    setup: Setup,
    kubeconfig: PathBuf,
    /// Where the extender listens.
    port: Port,
    directory: TempDir,
    /// Last, so that it finds nothing left to do when all goes well.
    _watchdog: Watchdog,
}

impl SimNode {
    /// Makes the node, without the product on it. Has to be called inside a tokio runtime.
    pub async fn start(setup: Setup) -> Result<Self> {
        let directory = short_directory()?;
        let path = directory.path();
        let watchdog = Watchdog::start(&path.join("sim"), path)?;
        programs::lay_out(&setup.programs, path)?;
        std::fs::create_dir(path.join("shm"))?;
        let store = Store::create(path.join("sim"), &state(&setup)?)?;
        let kube = Arc::new(FakeKube::start().await?);
        bridge::create_node(&kube, NODE).await?;
        let kubeconfig = kube.kubeconfig(path)?;
        let kubelet =
            Arc::new(FakeKubelet::start(kubelet_options(path, &store, setup.seed)).await?);
        let bridge =
            tokio::spawn(bridge::run(Arc::clone(&kube), Arc::clone(&kubelet), setup.sync_every));
        let port = Port::reserve()?;
        let extender = (!setup.managed.is_empty())
            .then(|| Extender::new(port.address()?, setup.managed.clone()))
            .transpose()?;
        let scheduler = scheduler::run(Arc::clone(&kube), NODE.to_owned(), extender);
        let scheduler = tokio::spawn(scheduler);
        Ok(Self {
            roles: BTreeMap::new(),
            bridge,
            scheduler,
            kubelet,
            kube,
            store,
            setup,
            kubeconfig,
            port,
            directory,
            _watchdog: watchdog,
        })
    }

    /// Starts a process of the product.
    pub fn start_role(&mut self, role: Role) -> Result<()> {
        let mut command = self.role(role)?;
        if self.setup.launch == Launch::Host {
            // Daemons have their card's directory at /dev/shm itself.
            command.env_remove(SHM_ENV);
        }
        let log = self.log(role);
        let process =
            RoleProcess::start(command, &log).with_context(|| format!("can't start {role}"))?;
        self.roles.insert(role, process);
        Ok(())
    }

    /// Starts a second process of a role beside the first; the caller ends it.
    pub fn start_second(&self, role: Role) -> Result<std::process::Child> {
        let log = std::fs::File::options().create(true).append(true).open(self.log(role))?;
        let mut command = self.role(role)?;
        Ok(command.stdout(log.try_clone()?).stderr(log).spawn()?)
    }

    /// Starts all three, and the extender where there is one.
    pub fn start_product(&mut self) -> Result<()> {
        if self.has_extender() {
            self.start_role(Role::SchedulerExtender)?;
        }
        Role::ALL.into_iter().try_for_each(|role| self.start_role(role))
    }

    /// Whether the product's extender takes part in scheduling.
    pub fn has_extender(&self) -> bool {
        !self.setup.managed.is_empty()
    }

    /// Ends a process of the product by a signal and reaps it.
    pub fn end_role(&mut self, role: Role, signal: Signal) -> Result<()> {
        let process = self.roles.remove(&role).with_context(|| format!("{role} isn't running"))?;
        Ok(process.end(signal)?)
    }

    /// PID of a process of the product.
    pub fn role_pid(&self, role: Role) -> Option<u32> {
        self.roles.get(&role).map(RoleProcess::pid)
    }

    /// Roles that ended without being told to.
    pub fn ended_roles(&mut self) -> Vec<Role> {
        let ended = self
            .roles
            .iter_mut()
            .filter_map(|(role, process)| process.has_ended().then_some(*role));
        ended.collect()
    }

    /// A program of the node, with the node's environment.
    pub fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.path().join("bin").join(name));
        command.env_clear().envs(environment(self.path(), &self.store));
        command
    }

    /// The log of a process of the product.
    pub fn log(&self, role: Role) -> PathBuf {
        self.path().join(format!("{role}.log"))
    }

    /// UUIDs of the cards in index order.
    pub fn cards(&self) -> Vec<&'static str> {
        self.setup.cards.iter().map(|(_, uuid)| *uuid).collect()
    }

    /// The node's directory.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The product's files.
    pub fn mps_root(&self) -> MpsRoot {
        MpsRoot::new(self.path().join("mps"))
    }

    /// What the supervisor reports; `None` before the first report.
    pub fn status(&self) -> Option<NodeStatus> {
        read_document(&self.mps_root().status()).ok().flatten()
    }

    /// The kubelet.
    pub fn kubelet(&self) -> &FakeKubelet {
        &self.kubelet
    }

    /// The API server.
    pub fn kube(&self) -> &FakeKube {
        &self.kube
    }

    /// A kubeconfig for `kubectl`.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The simulated driver.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// PIDs of everything that runs on the node.
    pub fn processes(&self) -> Vec<i32> {
        leftovers::processes(self.store.dir())
    }

    /// The program of a role, with its arguments.
    fn role(&self, role: Role) -> Result<Command> {
        if role == Role::SchedulerExtender {
            let mut command = self.program("mpshare-scheduler-extender");
            command.args(["--listen", &self.port.address()?.to_string(), "--kubeconfig"]);
            command.arg(&self.kubeconfig);
            return Ok(command);
        }
        let mut command = self.program("mpshare");
        command.arg(role.name()).args(self.arguments(role));
        Ok(command)
    }

    fn arguments(&self, role: Role) -> Vec<String> {
        let path = |name: &str| self.path().join(name).display().to_string();
        let mut arguments = vec!["--mps-root".to_owned(), path("mps")];
        match role {
            Role::Supervisor => {
                arguments.extend(["--proc-root".to_owned(), path("proc")]);
                if self.setup.launch == Launch::Host {
                    let own = "--launch host --host-mount-namespace /proc/self/ns/mnt";
                    arguments.extend(own.split(' ').map(ToOwned::to_owned));
                }
                arguments.extend(self.setup.supervisor.iter().map(|word| (*word).to_owned()));
            }
            Role::DevicePlugin => arguments.extend([
                "--device-plugins-dir".to_owned(),
                path("device-plugins"),
                "--pod-resources-socket".to_owned(),
                path("pod-resources/kubelet.sock"),
            ]),
            Role::ConfigManager => {
                let kubeconfig = self.kubeconfig.display().to_string();
                arguments.extend(["--node-name".to_owned(), NODE.to_owned()]);
                arguments.extend(["--kubeconfig".to_owned(), kubeconfig]);
                if let Some(name) = self.setup.default_config {
                    arguments.extend(["--default-config".to_owned(), name.to_owned()]);
                }
            }
            // Not one of the node's: it has no files there.
            Role::SchedulerExtender => {}
        }
        arguments
    }
}

impl Drop for SimNode {
    fn drop(&mut self) {
        self.bridge.abort();
        self.scheduler.abort();
        self.roles.clear();
        let left = leftovers::kill(self.store.dir(), Duration::from_secs(10));
        if !left.is_empty() {
            tracing::error!(?left, "processes of a simulated node can't be ended");
        }
    }
}

fn state(setup: &Setup) -> Result<SimState> {
    let mut state = SimState::default();
    setup.driver.clone_into(&mut state.driver.version);
    for (index, (model, uuid)) in (0..).zip(&setup.cards) {
        let card = SimGpu::of_model(model, index, uuid);
        state.gpus.push(card.with_context(|| format!("no simulated model `{model}`"))?);
    }
    Ok(state)
}

fn kubelet_options(path: &Path, store: &Store, seed: u64) -> Options {
    let mut options = Options::in_directory(path);
    NODE.clone_into(&mut options.node_name);
    options.proc_root = Some(path.join("proc"));
    options.host_shm = Some(path.join("shm"));
    options.env = environment(path, store);
    options.seed = seed;
    // What the documents' images do with CUDA is done by the simulated driver's sample.
    let sample = path.join("bin/cuda-sample").display().to_string();
    for (image, amount) in [("nvidia/cuda:12.0-base", "2Gi"), (ACK_IMAGE, "6Gi")] {
        let instead = [&sample, "--alloc", amount, "--hold", "forever"].map(str::to_owned);
        let instead = Image { instead: Some(instead.into()), ..Image::default() };
        options.images.insert(image.to_owned(), instead);
    }
    options
}

fn environment(path: &Path, store: &Store) -> BTreeMap<String, String> {
    let system = std::env::var("PATH").unwrap_or_default();
    BTreeMap::from([
        ("PATH".to_owned(), format!("{}:{system}", path.join("bin").display())),
        ("LD_LIBRARY_PATH".to_owned(), path.join("lib").display().to_string()),
        (SIM_DIR_ENV.to_owned(), store.dir().display().to_string()),
        // The simulated host's /dev/shm.
        (SHM_ENV.to_owned(), path.join("shm").display().to_string()),
    ])
}

/// Pipe directories may have 87 bytes in all, so the temporary directory must be short.
fn short_directory() -> Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("mpshare-");
    let preferred = std::env::temp_dir();
    let place = if preferred.as_os_str().len() <= 24 { preferred } else { PathBuf::from("/tmp") };
    builder
        .tempdir_in(&place)
        .with_context(|| format!("no temporary directory in `{}`", place.display()))
}
