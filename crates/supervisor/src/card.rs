//! One card: looking at it, and doing one step.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpshare_api::{GpuPaths, MpsRoot};
use mpshare_core::{DriverVersion, Gpu, GpuPlan, Hosting, Limits, Reason, VersionProfile};
use mpshare_mps::{
    ControlDaemon, DaemonError, DaemonFault, DaemonLimits, DaemonSite, Pid, PipeDirectory,
    ProcessId, log,
};
use mpshare_nvml::ComputeMode;
use tracing::{info, warn};

use crate::journal::ModeJournal;
use crate::obstacles::{self, Obstacles};
use crate::options::Ports;
use crate::overheard::{Effect, Overheard};
use crate::servers::{Load, ServerView};
use crate::start_limits::StartLimits;
use crate::steps::{Holder, Outdated, Seen, ServerSeen, Step, Stray};

mod directories;
mod error;
mod replacing;
mod strays;

use directories::make_directories;

pub(crate) use directories::subdirectories;
pub(crate) use error::{CardError, chain};
pub(crate) use strays::Mute;

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
    /// Its version.
    pub driver: Option<DriverVersion>,
    /// The edges of the world.
    pub ports: Ports,
    /// What keeps daemons from being launched.
    pub obstacles: Arc<Obstacles>,
    /// Compute modes to restore.
    pub journal: Arc<ModeJournal>,
    /// Daemons that were found to be ours, and the driver that each was started under; asking again
    /// costs a control session.
    pub known: BTreeMap<ProcessId, Option<String>>,
    /// The daemon whose limits were read back, and those limits.
    pub verified: Option<(ProcessId, Limits)>,
    /// Its server.
    pub servers: ServerView,
    /// What that server got at its start.
    pub start_limits: StartLimits,
    /// What others said to its daemon.
    pub overheard: Overheard,
    /// How long a server may take to start.
    pub start_deadline: Duration,
    /// A server whose worker has seen that it won't come to itself, and how it was.
    pub given_up: Option<(ProcessId, &'static str)>,
    /// Daemons of former configs that give no answer.
    pub mute: Mute,
    /// Whether the card had clients when it was last looked at.
    pub load: Load,
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
            quitting: None,
            is_stuck_quitting: false,
            outdated: None,
        };
        for paths in self.directories(wanted.as_ref())? {
            let daemon = self.daemon(&paths)?;
            if Some(&paths) != wanted.as_ref() {
                match self.look_at_stray(daemon.as_ref(), &paths)? {
                    Some(Live::Foreign(pid)) => seen.daemon = Holder::Foreign(pid),
                    Some(Live::Ours(stray)) => seen.strays.push(stray),
                    None => {}
                }
                continue;
            }
            let holder = match self.holder(daemon.as_ref()) {
                // One that was told to quit has no session left by which it could be asked.
                Err(error) if error.is_passing() => {
                    let quitting = self.quitting(daemon.as_ref()).ok_or(error)?;
                    Some(Live::Ours(quitting))
                }
                holder => holder?,
            };
            match holder {
                Some(Live::Foreign(pid)) => seen.daemon = Holder::Foreign(pid),
                Some(Live::Ours(process)) => {
                    self.look_at_planned(daemon.as_ref(), process, &mut seen)?;
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

    /// What is to be seen of the live daemon in the directory that the plan names.
    fn look_at_planned(
        &mut self,
        daemon: &dyn ControlDaemon,
        process: ProcessId,
        seen: &mut Seen,
    ) -> Result<(), CardError> {
        let was_told = self.start_limits.trouble(&self.gpu.uuid).is_some();
        seen.daemon = Holder::Ours(process.pid.get());
        seen.verified = self.verified.filter(|(pid, _)| *pid == process).map(|(_, limits)| limits);
        if let Some(was) = self.former_driver(process) {
            let clients = self.clients_by_driver()?;
            let dir = daemon.site().pipe.path();
            let stray =
                Stray { dir: dir.parent().unwrap_or(dir).to_owned(), clients, is_mute: false };
            seen.outdated = Some(Outdated { daemon: stray, was });
            // Its answers are those of another version.
            return Ok(());
        }
        match self.listen(daemon, process, seen.verified) {
            Effect::None => {}
            Effect::Limits => seen.verified = None,
            // Whoever told it so has the one session that it takes (facts/mps.md 4.3).
            Effect::Quitting => {
                let clients = self.clients_by_driver()?;
                seen.quitting = Some(clients);
                seen.is_stuck_quitting = self.overheard.is_stuck_quitting(clients, Instant::now());
                return Ok(());
            }
        }
        seen.server = self.server(daemon, seen.verified)?;
        if was_told && self.is_rid_of_wrong_limits(daemon)? {
            seen.verified = None;
        }
        Ok(())
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
        if self.hopeless().is_some() {
            return Ok(ServerSeen::Hopeless);
        }
        self.start_limits.met(server, in_force, now);
        if seen != ServerSeen::Running {
            return Ok(seen);
        }
        self.start_limits.compare(&daemon.site().server_log(), now);
        Ok(if self.start_limits.is_awaited(now) { ServerSeen::Starting } else { seen })
    }

    /// How many clients there are by what the driver says, whatever a daemon can be asked.
    fn clients_by_driver(&self) -> Result<usize, CardError> {
        Ok(self.ports.inventory.mps_processes(&self.gpu.uuid)?.len())
    }

    /// The driver that a daemon was started under, if that is another one now.
    fn former_driver(&self, daemon: ProcessId) -> Option<String> {
        let was = self.known.get(&daemon)?.clone()?;
        let now = self.driver.as_ref()?;
        (was != now.as_str()).then_some(was)
    }

    fn listen(
        &mut self,
        daemon: &dyn ControlDaemon,
        process: ProcessId,
        verified: Option<Limits>,
    ) -> Effect {
        let limits = verified.and_then(|limits| DaemonLimits::try_from(limits).ok());
        self.overheard.listen(process, &daemon.site().control_log(), limits, Instant::now())
    }

    /// The live daemon of a directory, if its log says that it was told to quit.
    fn quitting(&mut self, daemon: &dyn ControlDaemon) -> Option<ProcessId> {
        let process = daemon.holder().ok()??;
        (self.listen(daemon, process, None) == Effect::Quitting).then_some(process)
    }

    /// The server, if it has to be replaced, and why.
    pub(crate) fn hopeless(&self) -> Option<(ProcessId, &'static str)> {
        let server = self.servers.server()?;
        // It never had a client, and who waits for it would wait for ever (facts/mps.md 4.2).
        if self.servers.is_stuck(self.start_deadline, Instant::now()) {
            return Some((server, "hung at its start"));
        }
        self.given_up.filter(|(given_up, _)| *given_up == server)
    }

    /// Whether a client of our user is one that the server takes: before `-multiuser-server` it takes one
    /// user's, and one of another user would have it leave after its last client (facts/mps.md 3).
    pub(crate) fn takes_our_user(&self, server: Pid) -> bool {
        let us = rustix::process::geteuid().as_raw();
        let is_ours = || self.ports.host_proc.uid(server).is_ok_and(|uid| uid == Some(us));
        self.servers.is_serving() && (self.serves_all_users() || is_ours())
    }

    /// Whether daemons are started so that one server takes the clients of all users.
    pub(crate) fn serves_all_users(&self) -> bool {
        self.profile.has_multiuser_server() && rustix::process::geteuid().is_root()
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
        self.known.contains_key(&process).then_some(process)
    }

    /// What is wrong with the server.
    pub(crate) fn trouble(&self) -> Option<Reason> {
        let gpu = &self.gpu.uuid;
        self.servers
            .trouble(gpu, self.start_deadline, Instant::now())
            .or_else(|| self.start_limits.trouble(gpu))
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
            Step::EndServer => self.end_server(plan),
            Step::EndStray(dir) => self.end_stray(dir),
            Step::EndDaemon => {
                warn!(%gpu, "ending an MPS daemon that was told to quit and doesn't");
                self.verified = None;
                let daemon = self.planned_daemon(plan)?;
                Ok(daemon.map_or(Ok(()), |daemon| daemon.kill())?)
            }
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

    fn holder(&mut self, daemon: &dyn ControlDaemon) -> Result<Option<Live<ProcessId>>, CardError> {
        let Some(process) = daemon.holder()? else {
            return Ok(None);
        };
        if self.known.contains_key(&process) {
            return Ok(Some(Live::Ours(process)));
        }
        match daemon.adopt() {
            Ok(adopted) => {
                let Some(adopted) = adopted else { return Ok(None) };
                self.known.insert(adopted.process, adopted.driver);
                Ok(Some(Live::Ours(adopted.process)))
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
        let clients = self.clients_by_driver()?;
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
        self.known.insert(process, self.driver.as_ref().map(ToString::to_string));
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
        let server = self.servers.pid().map(Pid::get);
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
        Ok((self.ports.daemons)(site, self.profile, self.driver.as_ref()))
    }
}

/// Whoever holds a directory.
enum Live<T> {
    /// A daemon of ours, and what is known of it.
    Ours(T),
    /// Another process.
    Foreign(i32),
}

impl<T> Live<T> {
    fn map<U>(self, known: impl FnOnce(T) -> U) -> Live<U> {
        match self {
            Self::Ours(it) => Live::Ours(known(it)),
            Self::Foreign(pid) => Live::Foreign(pid),
        }
    }
}

fn count_clients(daemon: &dyn ControlDaemon) -> Result<usize, CardError> {
    let mut clients = 0;
    for server in daemon.servers()? {
        clients += daemon.clients(server.pid)?.len();
    }
    Ok(clients)
}
