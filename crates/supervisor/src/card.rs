//! One card: looking at it, and doing one step.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpshare_api::{DocumentError, GpuPaths, MpsRoot};
use mpshare_core::{Gpu, GpuPlan, GpuUuid, Hosting, Limits, Reason, VersionProfile};
use mpshare_mps::{
    ControlDaemon, DaemonError, DaemonFault, DaemonLimits, DaemonSite, LimitError, PipeDirectory,
    ProcessId, SiteError, log,
};
use mpshare_nvml::{ComputeMode, NvmlError};
use thiserror::Error;
use tracing::info;

use crate::journal::ModeJournal;
use crate::obstacles::{self, Obstacles};
use crate::options::Ports;
use crate::servers::{Load, ServerView};
use crate::start_limits::StartLimits;
use crate::steps::{Holder, Seen, ServerSeen, Step, Stray};

/// For how long `quit` may wait for clients that came in since they were counted.
const QUIT_DRAIN: Duration = Duration::from_secs(5);

/// A card and what its worker needs.
pub(crate) struct Card {
    /// Its facts.
    pub gpu: Gpu,
    /// Where everything lies.
    pub root: MpsRoot,
    /// What the driver's MPS can do.
    pub profile: VersionProfile,
    /// The edges of the world.
    pub ports: Ports,
    /// What keeps daemons from being launched.
    pub obstacles: Arc<Obstacles>,
    /// Compute modes to restore.
    pub journal: Arc<ModeJournal>,
    /// Daemons that were found to be ours; asking again costs a control session.
    pub known: BTreeSet<ProcessId>,
    /// The daemon whose limits were read back, and those limits.
    pub verified: Option<(ProcessId, Limits)>,
    /// Its server.
    pub servers: ServerView,
    /// What that server got at its start.
    pub start_limits: StartLimits,
    /// Whether the card had clients when it was last looked at.
    pub load: Load,
}

/// Why a look or a step failed.
#[derive(Debug, Error)]
pub(crate) enum CardError {
    /// The card or the driver.
    #[error(transparent)]
    Nvml(#[from] NvmlError),
    /// The daemon.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// The compute mode can't be set.
    #[error("compute mode can't be set")]
    ComputeMode(#[source] NvmlError),
    /// The journal of compute modes.
    #[error("compute mode journal")]
    Journal(#[from] DocumentError),
    /// A directory of the card.
    #[error("directory `{path}`")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The MPS root is too long for a socket.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// No server holds the card.
    #[error("{0}")]
    Server(Reason),
    /// Step after step, and never where the plan wants it.
    #[error("something else keeps changing the card")]
    Unsteady,
    /// A limit that would mean no limit.
    #[error(transparent)]
    Limit(#[from] LimitError),
}

impl CardError {
    /// What people are told.
    pub(crate) fn reason(&self, gpu: &GpuUuid) -> Reason {
        if let Self::Server(reason) = self {
            return reason.clone();
        }
        let gpu = gpu.clone();
        if let Self::Daemon(error) = self
            && let DaemonFault::NotApplied { wanted, found } = &*error.fault
        {
            let wanted = format!("{} and {} %", wanted.memory, wanted.percent);
            return Reason::LimitMismatch { gpu, wanted, found: found.to_string() };
        }
        let problem = match self {
            // The reason names card and daemon itself.
            Self::Daemon(error) => chain(&error.fault),
            _ => chain(self),
        };
        if let Self::ComputeMode(source) = self {
            return Reason::ComputeModeDenied { gpu, problem: source.to_string() };
        }
        if matches!(self, Self::Nvml(error) if error.is_lost()) {
            return Reason::GpuLost { gpu, problem };
        }
        Reason::DaemonFailed { gpu, problem }
    }

    /// Whether this says nothing about the daemon's health: somebody else talks to it, or a server
    /// of it is coming or going.
    pub(crate) fn is_passing(&self) -> bool {
        let Self::Daemon(error) = self else {
            return false;
        };
        matches!(
            *error.fault,
            DaemonFault::Busy { .. }
                | DaemonFault::ServerInitializing(_)
                | DaemonFault::NoSuchServer(_)
        )
    }
}

/// An error with its causes, those that say something new.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

impl Card {
    /// Looks at the card.
    pub(crate) fn look(&mut self, plan: &GpuPlan) -> Result<Seen, CardError> {
        let wanted = self.wanted_paths(plan);
        let mut seen = Seen {
            gpu: self.gpu.uuid.clone(),
            daemon: Holder::Nobody,
            strays: Vec::new(),
            is_exclusive_process: self.ports.inventory.compute_mode(&self.gpu.uuid)?
                == Some(ComputeMode::ExclusiveProcess),
            has_mode_to_restore: self.journal.former(&self.gpu.uuid).is_some(),
            verified: None,
            server: ServerSeen::Absent,
            obstacle: None,
        };
        let was_told = self.start_limits.trouble(&self.gpu.uuid).is_some();
        for paths in self.directories(wanted.as_ref())? {
            let daemon = self.daemon(&paths)?;
            let holder = self.holder(daemon.as_ref())?;
            let is_wanted = Some(&paths) == wanted.as_ref();
            match holder {
                Some(Live::Foreign(pid)) => seen.daemon = Holder::Foreign(pid),
                Some(Live::Ours(process)) if is_wanted => {
                    seen.daemon = Holder::Ours(process.pid.get());
                    seen.verified =
                        self.verified.filter(|(pid, _)| *pid == process).map(|(_, limits)| limits);
                    seen.server = self.server(daemon.as_ref(), seen.verified)?;
                    if was_told && self.is_rid_of_wrong_limits(daemon.as_ref())? {
                        seen.verified = None;
                    }
                }
                Some(Live::Ours(_)) => {
                    let clients = count_clients(daemon.as_ref())?;
                    seen.strays.push(Stray { dir: paths.dir().to_owned(), clients });
                }
                None => {}
            }
        }
        let has_daemon = matches!(seen.daemon, Holder::Ours(_)) || !seen.strays.is_empty();
        if has_daemon && seen.is_exclusive_process && !seen.has_mode_to_restore {
            self.journal.assume_default(&self.gpu.uuid)?;
        }
        if wanted.is_some() && seen.daemon == Holder::Nobody {
            seen.obstacle = self.obstacles.of_card(&self.ports, &self.root, &self.gpu);
        }
        Ok(seen)
    }

    /// The server of a live daemon, whose verified limits are `in_force`.
    fn server(
        &mut self,
        daemon: &dyn ControlDaemon,
        in_force: Option<Limits>,
    ) -> Result<ServerSeen, CardError> {
        let now = Instant::now();
        let seen = self.servers.refresh(daemon, &self.ports.host_proc, self.load, now)?;
        let Some(server) = self.servers.server() else { return Ok(seen) };
        self.start_limits.met(server, in_force, now);
        if seen != ServerSeen::Running {
            return Ok(seen);
        }
        self.start_limits.compare(&daemon.site().server_log(), now);
        Ok(if self.start_limits.is_awaited(now) { ServerSeen::Starting } else { seen })
    }

    /// Whether a server that somebody gave other limits has no client that could have got them: then
    /// it and its daemon can get the right ones. Else one tenant that is root in its container, and so
    /// for the daemon, could put a card out of service for good.
    fn is_rid_of_wrong_limits(&self, daemon: &dyn ControlDaemon) -> Result<bool, CardError> {
        Ok(self.start_limits.trouble(&self.gpu.uuid).is_some() && count_clients(daemon)? == 0)
    }

    /// The daemon that `error` says was silent, if it is a live one of ours whose server still
    /// holds the card.
    pub(crate) fn silent_daemon(&self, error: &CardError) -> Option<ProcessId> {
        let CardError::Daemon(DaemonError { pipe, fault, .. }) = error else { return None };
        let is_silent = matches!(**fault, DaemonFault::NoAnswer { .. });
        if !is_silent || !self.servers.is_alive(&self.ports.host_proc) {
            return None;
        }
        let process = self.daemon(&GpuPaths::at(pipe.parent()?)).ok()?.holder().ok()??;
        self.known.contains(&process).then_some(process)
    }

    /// What is wrong with the server.
    pub(crate) fn trouble(&self) -> Option<Reason> {
        let gpu = &self.gpu.uuid;
        self.servers.trouble(gpu, Instant::now()).or_else(|| self.start_limits.trouble(gpu))
    }

    /// Does one step; waiting and being settled are none.
    pub(crate) fn perform(&mut self, step: &Step, plan: &GpuPlan) -> Result<(), CardError> {
        let gpu = self.gpu.uuid.clone();
        match step {
            Step::SetComputeMode => self.set_compute_mode(),
            Step::RestoreComputeMode => self.restore_compute_mode(),
            Step::Start(limits) => self.start(*limits, plan),
            Step::Apply(limits) => self.apply(*limits, plan),
            Step::Quit(dir) => {
                info!(%gpu, dir = %dir.display(), "ending an MPS daemon without clients");
                self.verified = None;
                Ok(self.daemon(&GpuPaths::at(dir))?.quit(QUIT_DRAIN)?)
            }
            Step::StartServer => self.start_server(plan),
            Step::AwaitServer | Step::Wait(_) | Step::Refuse(_) | Step::Settled => Ok(()),
        }
    }

    /// The daemon that the plan names, if it names one.
    pub(crate) fn planned_daemon(
        &self,
        plan: &GpuPlan,
    ) -> Result<Option<Box<dyn ControlDaemon>>, CardError> {
        self.wanted_paths(plan).map(|paths| self.daemon(&paths)).transpose()
    }

    fn holder(&mut self, daemon: &dyn ControlDaemon) -> Result<Option<Live>, CardError> {
        let Some(process) = daemon.holder()? else {
            return Ok(None);
        };
        if self.known.contains(&process) {
            return Ok(Some(Live::Ours(process)));
        }
        match daemon.adopt() {
            Ok(adopted) => {
                self.known.extend(adopted.map(|adopted| adopted.process));
                Ok(adopted.map(|adopted| Live::Ours(adopted.process)))
            }
            Err(error) => {
                let DaemonFault::Foreign { pid, .. } = *error.fault else {
                    return Err(error.into());
                };
                Ok(Some(Live::Foreign(pid.get())))
            }
        }
    }

    fn set_compute_mode(&self) -> Result<(), CardError> {
        let gpu = &self.gpu.uuid;
        // A card without compute modes answers the setting with an error that says so.
        if let Some(former) = self.ports.inventory.compute_mode(gpu)? {
            self.journal.remember(gpu, former)?;
        }
        let set = self.ports.inventory.set_compute_mode(gpu, ComputeMode::ExclusiveProcess);
        set.map_err(CardError::ComputeMode)?;
        info!(%gpu, "compute mode set to EXCLUSIVE_PROCESS");
        Ok(())
    }

    /// Servers whose daemon has died hold the card, in whatever directory the daemon was.
    fn remove_orphans(&self) -> Result<(), CardError> {
        for paths in self.directories(None)? {
            let daemon = self.daemon(&paths)?;
            if daemon.holder()?.is_none() {
                daemon.remove_orphans()?;
            }
        }
        Ok(())
    }

    /// A daemon whose directory somebody has removed serves its clients to their end, and nobody
    /// else: then it makes room.
    fn give_up_lost_daemons(&self, daemon: &dyn ControlDaemon) -> Result<(), CardError> {
        if daemon.lost()?.is_empty() {
            return Ok(());
        }
        let gpu = self.gpu.uuid.clone();
        let clients = self.ports.inventory.mps_processes(&gpu)?.len();
        if clients > 0 {
            return Err(CardError::Server(Reason::WaitingForClients { gpu, clients }));
        }
        info!(%gpu, "ending an MPS daemon whose directory was removed");
        Ok(daemon.kill_lost()?)
    }

    fn restore_compute_mode(&self) -> Result<(), CardError> {
        let gpu = &self.gpu.uuid;
        self.remove_orphans()?;
        if let Some(former) = self.journal.former(gpu) {
            let set = self.ports.inventory.set_compute_mode(gpu, former);
            set.map_err(CardError::ComputeMode)?;
            self.journal.forget(gpu)?;
            info!(%gpu, mode = %former, "compute mode restored");
        }
        Ok(())
    }

    fn start(&mut self, limits: Limits, plan: &GpuPlan) -> Result<(), CardError> {
        let Some(paths) = self.wanted_paths(plan) else {
            return Ok(());
        };
        self.remove_orphans()?;
        let daemon = self.daemon(&paths)?;
        self.give_up_lost_daemons(daemon.as_ref())?;
        make_directories(&self.root, &paths, &daemon.site().shm)?;
        let process = daemon.start(DaemonLimits::try_from(limits)?)?;
        info!(
            gpu = %self.gpu.uuid, pid = %process, memory = %limits.memory,
            percent = %limits.percent, "MPS daemon started, limits verified"
        );
        self.known.insert(process);
        self.verified = Some((process, limits));
        Ok(())
    }

    /// Default first, then the servers: one that starts in between has the new default already.
    fn apply(&mut self, limits: Limits, plan: &GpuPlan) -> Result<(), CardError> {
        let Some(daemon) = self.planned_daemon(plan)? else {
            return Ok(());
        };
        let Some(adopted) = daemon.adopt()? else {
            return Ok(());
        };
        let wanted = DaemonLimits::try_from(limits)?;
        let is_new = self.verified.is_none_or(|(process, _)| process != adopted.process);
        // From here on the former limits may hold no more, also when a later question fails.
        self.verified = None;
        daemon.apply(wanted)?;
        for server in daemon.servers()? {
            daemon.apply_to_server(server.pid, wanted)?;
            if let Ok(Some(process)) = self.ports.host_proc.identify(server.pid) {
                self.start_limits.changed(process);
            }
        }
        info!(
            gpu = %self.gpu.uuid, pid = %adopted.process, memory = %limits.memory,
            percent = %limits.percent, adopted = is_new, "limits of the MPS daemon verified"
        );
        self.verified = Some((adopted.process, limits));
        Ok(())
    }

    /// Why no server came up, in the words of the last one that tried.
    pub(crate) fn server_failure(&self, plan: &GpuPlan) -> Option<String> {
        let paths = self.wanted_paths(plan)?;
        let text = log::tail(&self.daemon(&paths).ok()?.site().server_log()).ok()?;
        log::server_failure(&text).map(str::to_owned)
    }

    fn start_server(&self, plan: &GpuPlan) -> Result<(), CardError> {
        let Some(daemon) = self.planned_daemon(plan)? else { return Ok(()) };
        Ok(daemon.start_server()?)
    }

    /// Why no server comes up: somebody else's MPS, other processes on the card, or who knows.
    pub(crate) fn no_server(&self) -> Reason {
        let gpu = self.gpu.uuid.clone();
        let outsiders = self.outsiders();
        if outsiders.is_empty() {
            return Reason::NoServer { gpu };
        }
        obstacles::foreign_server(&self.ports, &self.gpu, &outsiders)
            .unwrap_or(Reason::CardInUse { gpu, pids: outsiders })
    }

    /// Processes that hold the card without being clients or the server of its daemon.
    fn outsiders(&self) -> Vec<i32> {
        let gpu = &self.gpu.uuid;
        let inventory = &self.ports.inventory;
        let clients = inventory.mps_processes(gpu).unwrap_or_default();
        let all = inventory.compute_processes(gpu).unwrap_or_default();
        let server = self.servers.pid().map(mpshare_mps::Pid::get);
        let is_ours =
            |pid: i32| Some(pid) == server || clients.iter().any(|client| client.pid == pid);
        all.iter().map(|process| process.pid).filter(|pid| !is_ours(*pid)).collect()
    }

    fn wanted_paths(&self, plan: &GpuPlan) -> Option<GpuPaths> {
        match &plan.hosting {
            Hosting::Mps { resource, .. } => Some(self.root.gpu(resource, &self.gpu.uuid)),
            Hosting::Exclusive | Hosting::Nothing => None,
        }
    }

    fn daemon(&self, paths: &GpuPaths) -> Result<Box<dyn ControlDaemon>, CardError> {
        let site = DaemonSite {
            gpu: self.gpu.uuid.clone(),
            pipe: PipeDirectory::new(paths.pipe())?,
            log: paths.log(),
            shm: self.ports.shared_memory.directory(paths),
        };
        Ok((self.ports.daemons)(site, self.profile))
    }

    /// The wanted directory and every other one that this card has, or had under a former plan.
    fn directories(&self, wanted: Option<&GpuPaths>) -> Result<Vec<GpuPaths>, CardError> {
        let mut found: Vec<GpuPaths> = wanted.cloned().into_iter().collect();
        for domain in subdirectories(self.root.path())? {
            for resource in subdirectories(&domain)? {
                let paths = GpuPaths::at(resource.join(self.gpu.uuid.short()));
                if paths.pipe().is_dir() && !found.contains(&paths) {
                    found.push(paths);
                }
            }
        }
        Ok(found)
    }
}

enum Live {
    Ours(ProcessId),
    Foreign(i32),
}

fn count_clients(daemon: &dyn ControlDaemon) -> Result<usize, CardError> {
    let mut clients = 0;
    for server in daemon.servers()? {
        clients += daemon.clients(server.pid)?.len();
    }
    Ok(clients)
}

fn make_directories(root: &MpsRoot, paths: &GpuPaths, shm: &Path) -> Result<(), CardError> {
    let make = |path: &Path, mode: u32| {
        let made = fs::create_dir_all(path)
            .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)));
        made.map_err(|source| CardError::Directory { path: path.to_owned(), source })
    };
    // Clients of any uid must get through, whatever the umask (bottlerocket-kernel-kit#415).
    for dir in paths.dir().ancestors().take_while(|dir| dir.starts_with(root.path())) {
        make(dir, 0o755)?;
    }
    // A daemon that shares the host's own /dev/shm has no directory of its own for it.
    if shm.starts_with(root.path()) { make(shm, 0o1777) } else { Ok(()) }
}

pub(crate) fn subdirectories(path: &Path) -> Result<Vec<PathBuf>, CardError> {
    let io = |source| CardError::Directory { path: path.to_owned(), source };
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(io(source)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(io)?.path();
        if path.is_dir() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
