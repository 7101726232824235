//! The main thread: from files and events to what each worker should do, and to `status.json`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use mpshare_api::status::{FormerPods, ReasonText};
use mpshare_api::{
    DocumentError, FileStamp, GpuState, GpuStatus, NodeStatus, read_versioned, write_document,
};
use mpshare_core::{Gpu, GpuUuid, Inventory, NodePlan, Reason, VersionProfile, plan};
use mpshare_nvml::{Answer, EventKind, HealthTracker, NvmlError, XidPolicy};
use mpshare_watch::Removed;
use thiserror::Error;
use tracing::{info, warn};

use crate::card::{Card, chain};
use crate::cards;
use crate::death::DeathWatch;
use crate::event::Event;
use crate::former;
use crate::inputs::Inputs;
use crate::journal::ModeJournal;
use crate::obstacles::{self, Obstacles};
use crate::options::{Options, Ports};
use crate::overheard::Overheard;
use crate::preflight::Preflight;
use crate::servers::{Load, ServerView};
use crate::start_limits::StartLimits;
use crate::worker::{self, Assignment, Command, Worker};

/// How often former owners that still have processes are looked for.
const FORMER_EVERY: Duration = Duration::from_millis(200);

/// How often all processes of the node are searched for MPS daemons of others: each search reads a
/// link per process.
const NEARBY_EVERY: Duration = Duration::from_secs(30);

/// How often the report is looked after when nothing happens.
const TICK: Duration = cards::EVERY;

/// From here on a driver that says nothing counts as hanging, and its cards as lost: whatever a
/// container asks of it would hang, too.
const SILENCE: Duration = Duration::from_mins(1);

/// Why the supervisor can't work at all.
#[derive(Debug, Error)]
pub enum SupervisorError {
    /// The MPS root can't be used.
    #[error("MPS root `{path}`")]
    Root {
        /// The directory or file.
        path: std::path::PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A thread can't be started.
    #[error("can't start a thread")]
    Thread(#[source] std::io::Error),
    /// The MPS root was removed under its mount.
    #[error(transparent)]
    Removed(#[from] Removed),
}

/// The state of the main thread.
pub(crate) struct Node {
    pub options: Options,
    pub ports: Ports,
    pub events: Sender<Event>,
    deaths: DeathWatch,
    journal: Arc<ModeJournal>,
    obstacles: Arc<Obstacles>,
    preflight: Preflight,
    inputs: Inputs,
    /// `None` until the driver has answered once, if only with an error.
    inventory: Option<Inventory>,
    /// What the predecessor knew: a card may be lost by now.
    former_inventory: Option<Inventory>,
    health: HealthTracker,
    workers: BTreeMap<GpuUuid, Handle>,
    written: Option<(NodeStatus, Option<FileStamp>)>,
    write_problem: Option<String>,
    inventory_problem: Option<Reason>,
    /// When the driver last said something.
    answered: Instant,
    refusals: Vec<Reason>,
    /// Cards whose workers wait until everybody can know that they are out of service.
    withdrawn: Vec<GpuUuid>,
    status_is_written: bool,
    former: FormerPods,
    nearby: Nearby,
}

/// Daemons of somebody else.
#[derive(Default)]
struct Nearby {
    /// When they were looked for.
    looked: Option<Instant>,
    found: Vec<Reason>,
}

struct Handle {
    commands: Sender<Command>,
    assigned: Option<Assignment>,
    status: GpuStatus,
}

impl Node {
    pub(crate) fn new(
        options: Options,
        ports: Ports,
        policy: XidPolicy,
        events: Sender<Event>,
    ) -> Result<Self, SupervisorError> {
        // A report that can't be read counts as none.
        let last_report = read_versioned::<NodeStatus>(&options.root.status()).ok().flatten();
        let former_inventory = last_report.as_ref().and_then(NodeStatus::inventory);
        cards::watch_cards(&ports, former_inventory.as_ref(), events.clone())
            .map_err(SupervisorError::Thread)?;
        Ok(Self {
            deaths: DeathWatch::start().map_err(SupervisorError::Thread)?,
            journal: Arc::new(ModeJournal::open(options.root.compute_modes())),
            obstacles: Arc::default(),
            preflight: Preflight::default(),
            health: HealthTracker::new(policy, options.recovery),
            options,
            ports,
            events,
            inputs: Inputs::default(),
            inventory: None,
            former_inventory,
            workers: BTreeMap::new(),
            written: None,
            write_problem: None,
            inventory_problem: None,
            answered: Instant::now(),
            refusals: Vec::new(),
            withdrawn: Vec::new(),
            status_is_written: false,
            former: FormerPods::default(),
            nearby: Nearby::default(),
        })
    }

    /// Works until it is told to stop. Daemons and clients stay when it ends.
    pub(crate) fn run(&mut self, events: &Receiver<Event>) -> Result<(), SupervisorError> {
        loop {
            self.miss_the_driver();
            self.assign()?;
            self.look_for_former_owners();
            self.look_nearby();
            self.write_status();
            self.confirm_withdrawals()?;
            let wait = if self.former.alive.is_empty() { TICK } else { FORMER_EVERY };
            match events.recv_timeout(wait) {
                Ok(event) => {
                    if !self.take(event)? {
                        return Ok(());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            while let Ok(event) = events.try_recv() {
                if !self.take(event)? {
                    return Ok(());
                }
            }
        }
    }

    /// `false` when the supervisor should end.
    fn take(&mut self, event: Event) -> Result<bool, SupervisorError> {
        match event {
            // Whether it still is what was written is seen when it is written next.
            // This supervisor holds the lock already.
            Event::ReportTouched | Event::Locked(_) => {}
            Event::FilesChanged => self.inputs = self.inputs.refreshed(&self.options.root),
            Event::Report(status) => {
                let uuid = status.uuid.parse().ok();
                if let Some(handle) = uuid.and_then(|uuid| self.workers.get_mut(&uuid)) {
                    handle.status = *status;
                }
            }
            Event::Withdraw(gpu) => self.withdrawn.push(gpu),
            Event::Health(event) => {
                self.suspect(event.gpu.as_ref());
                let all: Vec<GpuUuid> = self.workers.keys().cloned().collect();
                for change in self.health.event(&event, &all, Instant::now()) {
                    warn!(?change, "health of a card changed");
                }
            }
            Event::Cards(found) => self.take_cards(found),
            Event::Probed(gpu, answer) => {
                self.answered = Instant::now();
                self.probed(&gpu, answer);
            }
            Event::RootRemoved(removed) => return Err(removed.into()),
            Event::Stop => return Ok(false),
        }
        Ok(true)
    }

    /// What the driver says of a card may be a fault of its server. That a program failed is told
    /// so, too, and is no ailment.
    fn suspect(&self, gpu: Option<&GpuUuid>) {
        let meant = |uuid: &GpuUuid| gpu.is_none_or(|gpu| gpu == uuid);
        for (_, handle) in self.workers.iter().filter(|(uuid, _)| meant(uuid)) {
            // A worker ends only with the process.
            drop(handle.commands.send(Command::Suspect));
        }
    }

    /// Cards don't come and go while a driver is loaded, but the driver may be upgraded, or come
    /// up after us.
    fn take_cards(&mut self, found: Result<Inventory, NvmlError>) {
        self.answered = Instant::now();
        match found {
            Ok(inventory) => {
                if let Some(_gone) = self.inventory_problem.take() {
                    info!("the driver answers again");
                }
                let before = self.inventory.as_ref().or(self.former_inventory.as_ref());
                let inventory = with_absent_cards(inventory, before);
                if self.inventory.as_ref() != Some(&inventory) {
                    let driver = &inventory.driver;
                    info!(%driver, cards = inventory.gpus.len(), "inventory");
                    if VersionProfile::is_guess_for(driver) {
                        warn!(%driver, "driver is newer than any that is known here, using the newest profile");
                    }
                    self.inventory = Some(inventory);
                }
            }
            Err(error) => {
                self.driver_fails(error.to_string());
            }
        }
    }

    fn driver_fails(&mut self, problem: String) {
        let reason = Reason::DriverUnavailable { problem };
        if self.inventory_problem.is_none() {
            warn!(%reason, "cards can't be read, retrying");
        }
        self.inventory_problem = Some(reason);
        // Cards that can't be looked at are still in the plan, and their shares are still held.
        self.inventory = self.inventory.take().or_else(|| self.former_inventory.clone());
    }

    /// A driver that hangs says nothing, so its silence has to do.
    fn miss_the_driver(&mut self) {
        if self.answered.elapsed() < SILENCE {
            return;
        }
        self.driver_fails(format!("no answer for more than {} s", SILENCE.as_secs()));
        let gpus: Vec<GpuUuid> = self.workers.keys().cloned().collect();
        for gpu in gpus {
            self.probed(&gpu, Answer::None);
        }
    }

    fn probed(&mut self, gpu: &GpuUuid, answer: Answer) {
        if let Some(change) = self.health.probed(gpu, answer, Instant::now()) {
            info!(?change, "health of a card changed");
        }
    }

    /// Gives each worker its part of the plan, if that changed.
    fn assign(&mut self) -> Result<(), SupervisorError> {
        let (Some((_, config)), Some(inventory)) = (&self.inputs.config, &self.inventory) else {
            return Ok(());
        };
        let inventory = inventory.clone();
        let NodePlan { gpus: plans, refusals } = plan(config, &inventory, &self.inputs.live);
        self.refusals = refusals;
        // A driver that is too old gets no daemon at all; see the plan.
        let profile = VersionProfile::of(&inventory.driver).unwrap_or(VersionProfile::R535);
        for (gpu, plan) in inventory.gpus.iter().zip(plans) {
            if !self.workers.contains_key(&gpu.uuid) {
                let handle = self.start_worker(gpu, profile)?;
                self.workers.insert(gpu.uuid.clone(), handle);
            }
            let shares = self.inputs.shares.on(&gpu.uuid);
            let (driver, ending) = (inventory.driver.clone(), self.inputs.ending.clone());
            let assignment = Assignment { gpu: gpu.clone(), profile, driver, plan, shares, ending };
            if let Some(handle) = self.workers.get_mut(&gpu.uuid)
                && handle.assigned.as_ref() != Some(&assignment)
            {
                handle.assigned = Some(assignment.clone());
                // A worker ends only with the process.
                drop(handle.commands.send(Command::Assign(Box::new(assignment))));
            }
        }
        Ok(())
    }

    /// Shares that were recorded before the report reached the disk are counted once more. Whoever
    /// records one later reads the report before it lets a container start.
    fn confirm_withdrawals(&mut self) -> Result<(), SupervisorError> {
        if self.withdrawn.is_empty() || !self.status_is_written {
            return Ok(());
        }
        self.inputs = self.inputs.refreshed(&self.options.root);
        self.assign()?;
        for gpu in std::mem::take(&mut self.withdrawn) {
            if let Some(handle) = self.workers.get(&gpu) {
                // A worker ends only with the process.
                drop(handle.commands.send(Command::Withdrawn));
            }
        }
        Ok(())
    }

    fn ailment(&self, gpu: &GpuUuid) -> Option<Reason> {
        let gpu = gpu.clone();
        Some(match self.health.ailment(&gpu)? {
            EventKind::Xid(xid) => Reason::Xid { gpu, xid },
            EventKind::Lost => {
                let problem = "it has fallen off the bus or needs a reset".to_owned();
                Reason::GpuLost { gpu, problem }
            }
        })
    }

    fn start_worker(&self, gpu: &Gpu, profile: VersionProfile) -> Result<Handle, SupervisorError> {
        let (commands, received) = mpsc::channel();
        let worker = Worker {
            card: Card {
                gpu: gpu.clone(),
                root: self.options.root.clone(),
                profile,
                driver: None,
                ports: self.ports.clone(),
                journal: Arc::clone(&self.journal),
                obstacles: Arc::clone(&self.obstacles),
                known: BTreeMap::new(),
                verified: None,
                servers: ServerView::default(),
                overheard: Overheard::default(),
                start_deadline: self.options.start_deadline,
                given_up: None,
                mute: BTreeMap::new(),
                start_limits: StartLimits::default(),
                load: Load::Idle,
            },
            options: self.options.clone(),
            commands: received,
            to_self: commands.clone(),
            deaths: self.deaths.clone(),
            events: self.events.clone(),
            state: worker::Memory::default(),
        };
        worker::spawn(worker).map_err(SupervisorError::Thread)?;
        Ok(Handle { commands, assigned: None, status: GpuStatus::starting(gpu) })
    }

    /// After each grant, and again and again while one is still there.
    fn look_for_former_owners(&mut self) {
        if self.former.revision != self.inputs.revision || !self.former.alive.is_empty() {
            self.former = former::look(&self.ports.cgroup_proc, &self.inputs);
        }
    }

    fn look_nearby(&mut self) {
        let Some(inventory) = &self.inventory else { return };
        if self.nearby.looked.is_none_or(|at| at.elapsed() >= NEARBY_EVERY) {
            let found = obstacles::nearby(&self.ports, &self.options.root, &inventory.gpus);
            self.nearby = Nearby { looked: Some(Instant::now()), found };
        }
    }

    fn write_status(&mut self) {
        let Some(inventory) = &self.inventory else {
            // Before the driver has answered there is nothing to say.
            if self.inventory_problem.is_some() {
                self.write(self.without_cards());
            }
            return;
        };
        let status = NodeStatus {
            version: NodeStatus::VERSION,
            config: self.inputs.config.as_ref().map(|(name, _)| name.clone()).unwrap_or_default(),
            driver: inventory.driver.to_string(),
            shared_memory: self.ports.shared_memory,
            former_pods: self.former.clone(),
            gpus: inventory.gpus.iter().map(|gpu| self.card_status(gpu)).collect(),
            reasons: self.reasons(),
        };
        self.write(status);
    }

    /// What its worker reported last, unless the card is ill: a worker that hangs in the driver
    /// can't report that.
    fn card_status(&self, gpu: &Gpu) -> GpuStatus {
        let handle = self.workers.get(&gpu.uuid);
        let mut status =
            handle.map_or_else(|| GpuStatus::starting(gpu), |handle| handle.status.clone());
        if let Some(ailment) = self.ailment(&gpu.uuid) {
            let is_lost = matches!(ailment, Reason::GpuLost { .. });
            status.state = if is_lost { GpuState::Absent } else { GpuState::Fault };
            status.reason = Some(ReasonText::from(&ailment));
        }
        status
    }

    fn without_cards(&self) -> NodeStatus {
        NodeStatus {
            version: NodeStatus::VERSION,
            config: String::new(),
            driver: String::new(),
            shared_memory: self.ports.shared_memory,
            former_pods: self.former.clone(),
            gpus: Vec::new(),
            reasons: self.reasons(),
        }
    }

    fn reasons(&self) -> Vec<ReasonText> {
        let problems = self.inventory_problem.iter().chain(&self.inputs.problem);
        problems.chain(&self.refusals).chain(&self.nearby.found).map(ReasonText::from).collect()
    }

    fn write(&mut self, status: NodeStatus) {
        self.preflight.tell(&status);
        let path = self.options.root.status();
        let is_written = self.written.as_ref().is_some_and(|(written, stamp)| {
            *written == status && stamp.is_some() && FileStamp::of(&path) == *stamp
        });
        if is_written {
            self.status_is_written = true;
            return;
        }
        let written = write_document(&path, &status);
        self.status_is_written = written.is_ok();
        match written {
            Ok(()) => {
                self.written = Some((status, FileStamp::of(&path)));
                self.write_problem = None;
            }
            Err(error) => self.status_unwritten(&error),
        }
    }

    /// It is tried again at the next event, at the latest with the next inventory; said once.
    fn status_unwritten(&mut self, error: &DocumentError) {
        let problem = chain(error);
        if self.write_problem.as_ref() != Some(&problem) {
            warn!(%problem, "status can't be written, retrying");
            self.write_problem = Some(problem);
        }
    }
}

/// The driver leaves a lost card out of its list, but its shares and its place in the plan are
/// still there.
fn with_absent_cards(mut found: Inventory, before: Option<&Inventory>) -> Inventory {
    let known = before.map_or(&[][..], |before| &before.gpus);
    let absent: Vec<Gpu> =
        known.iter().filter(|gpu| found.gpu(&gpu.uuid).is_none()).cloned().collect();
    found.gpus.extend(absent);
    found.gpus.sort_by_key(|gpu| gpu.index);
    found
}

#[cfg(test)]
mod tests;
