//! The main thread: from files and events to what each worker should do, and to `status.json`.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use mpshare_api::status::ReasonText;
use mpshare_api::{GpuStatus, NodeStatus, read_document, write_document};
use mpshare_core::{Gpu, GpuUuid, Inventory, NodePlan, Reason, VersionProfile, plan};
use mpshare_nvml::{Answer, EventKind, HealthTracker, XidPolicy};
use rustix::fs::{FlockOperation, flock};
use thiserror::Error;
use tracing::{info, warn};

use crate::card::Card;
use crate::death::DeathWatch;
use crate::event::Event;
use crate::inputs::Inputs;
use crate::journal::ModeJournal;
use crate::options::{Options, Ports};
use crate::servers::{Load, ServerView};
use crate::worker::{self, Assignment, Command, Worker};

/// How often cards are looked for anew, and ill ones probed.
const INVENTORY_EVERY: Duration = Duration::from_secs(10);

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
}

/// The state of the main thread.
pub(crate) struct Node {
    pub options: Options,
    pub ports: Ports,
    pub events: Sender<Event>,
    deaths: DeathWatch,
    journal: Arc<ModeJournal>,
    inputs: Inputs,
    inventory: Option<Inventory>,
    health: HealthTracker,
    workers: BTreeMap<GpuUuid, Handle>,
    written: Option<NodeStatus>,
    inventory_problem: Option<Reason>,
    next_inventory: Instant,
    refusals: Vec<Reason>,
    /// Cards whose workers wait until everybody can know that they are out of service.
    withdrawn: Vec<GpuUuid>,
    status_is_written: bool,
}

struct Handle {
    commands: Sender<Command>,
    assigned: Option<Assignment>,
    status: GpuStatus,
}

/// Takes the node's lock: one supervisor at a time. A predecessor that is still ending is waited
/// for.
pub(crate) fn lock(options: &Options) -> Result<File, SupervisorError> {
    let path = options.root.supervisor_lock();
    let root = |source| SupervisorError::Root { path: path.clone(), source };
    std::fs::create_dir_all(options.root.path()).map_err(root)?;
    let file = File::options().create(true).append(true).open(&path).map_err(root)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        info!(lock = %path.display(), "another supervisor runs, waiting for its end");
        flock(&file, FlockOperation::LockExclusive).map_err(|errno| root(errno.into()))?;
    }
    Ok(file)
}

impl Node {
    pub(crate) fn new(
        options: Options,
        ports: Ports,
        policy: XidPolicy,
        events: Sender<Event>,
    ) -> Result<Self, SupervisorError> {
        // A report that can't be read counts as none.
        let last_report = read_document::<NodeStatus>(&options.root.status()).ok().flatten();
        Ok(Self {
            deaths: DeathWatch::start().map_err(SupervisorError::Thread)?,
            journal: Arc::new(ModeJournal::open(options.root.compute_modes())),
            health: HealthTracker::new(policy, options.recovery),
            options,
            ports,
            events,
            inputs: Inputs::default(),
            // What the predecessor knew: a card may be lost by now.
            inventory: last_report.as_ref().and_then(NodeStatus::inventory),
            workers: BTreeMap::new(),
            written: None,
            inventory_problem: None,
            next_inventory: Instant::now(),
            refusals: Vec::new(),
            withdrawn: Vec::new(),
            status_is_written: false,
        })
    }

    /// Works until it is told to stop. Daemons and clients stay when it ends.
    pub(crate) fn run(&mut self, events: &Receiver<Event>) -> Result<(), SupervisorError> {
        loop {
            let now = Instant::now();
            if now >= self.next_inventory {
                self.look_for_cards(now);
                self.next_inventory = now + INVENTORY_EVERY;
            }
            self.assign()?;
            self.write_status();
            self.confirm_withdrawals()?;
            match events.recv_timeout(self.next_inventory.saturating_duration_since(now)) {
                Ok(event) => {
                    if !self.take(event) {
                        return Ok(());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            while let Ok(event) = events.try_recv() {
                if !self.take(event) {
                    return Ok(());
                }
            }
        }
    }

    /// `false` when the supervisor should end.
    fn take(&mut self, event: Event) -> bool {
        match event {
            Event::FilesChanged => self.inputs = self.inputs.refreshed(&self.options.root),
            Event::Report(status) => {
                let uuid = status.uuid.parse().ok();
                if let Some(handle) = uuid.and_then(|uuid| self.workers.get_mut(&uuid)) {
                    handle.status = *status;
                }
            }
            Event::Withdraw(gpu) => self.withdrawn.push(gpu),
            Event::Health(event) => {
                let all: Vec<GpuUuid> = self.workers.keys().cloned().collect();
                for change in self.health.event(&event, &all, Instant::now()) {
                    warn!(?change, "health of a card changed");
                }
            }
            Event::Stop => return false,
        }
        true
    }

    /// Cards don't come and go while a driver is loaded, but the driver may be upgraded, or come
    /// up after us.
    fn look_for_cards(&mut self, now: Instant) {
        match self.ports.inventory.inventory() {
            Ok(inventory) => {
                if let Some(_gone) = self.inventory_problem.take() {
                    info!("the driver answers again");
                }
                let inventory = with_absent_cards(inventory, self.inventory.as_ref());
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
                let reason = Reason::DriverUnavailable { problem: error.to_string() };
                if self.inventory_problem.is_none() {
                    warn!(%reason, "cards can't be read, retrying");
                }
                self.inventory_problem = Some(reason);
            }
        }
        self.probe(now);
    }

    fn probe(&mut self, now: Instant) {
        let gpus: Vec<GpuUuid> = self.workers.keys().cloned().collect();
        for gpu in gpus {
            let is_lost = self.ports.inventory.probe(&gpu).is_err_and(|error| error.is_lost());
            let answer = if is_lost { Answer::None } else { Answer::Given };
            if let Some(change) = self.health.probed(&gpu, answer, now) {
                info!(?change, "health of a card changed");
            }
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
        self.workers.retain(|uuid, _| inventory.gpu(uuid).is_some());
        for (gpu, plan) in inventory.gpus.iter().zip(plans) {
            let ailment = self.ailment(&gpu.uuid);
            if !self.workers.contains_key(&gpu.uuid) {
                let handle = self.start_worker(gpu, &inventory)?;
                self.workers.insert(gpu.uuid.clone(), handle);
            }
            let assignment = Assignment { plan, ailment };
            if let Some(handle) = self.workers.get_mut(&gpu.uuid)
                && handle.assigned.as_ref() != Some(&assignment)
            {
                handle.assigned = Some(assignment.clone());
                // A worker ends only with its channel, and the channel is in the handle.
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
                // A worker ends only with its channel, and the channel is in the handle.
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

    fn start_worker(&self, gpu: &Gpu, inventory: &Inventory) -> Result<Handle, SupervisorError> {
        let (commands, received) = mpsc::channel();
        let worker = Worker {
            card: Card {
                gpu: gpu.clone(),
                root: self.options.root.clone(),
                // A driver that is too old gets no daemon at all; see the plan.
                profile: VersionProfile::of(&inventory.driver).unwrap_or(VersionProfile::R535),
                ports: self.ports.clone(),
                journal: Arc::clone(&self.journal),
                known: std::collections::BTreeSet::new(),
                verified: None,
                servers: ServerView::default(),
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

    fn write_status(&mut self) {
        let Some(inventory) = &self.inventory else {
            return self.write(self.without_cards());
        };
        let of = |gpu: &Gpu| {
            let handle = self.workers.get(&gpu.uuid);
            handle.map_or_else(|| GpuStatus::starting(gpu), |handle| handle.status.clone())
        };
        let status = NodeStatus {
            version: NodeStatus::VERSION,
            config: self.inputs.config.as_ref().map(|(name, _)| name.clone()).unwrap_or_default(),
            driver: inventory.driver.to_string(),
            shared_memory: self.ports.shared_memory,
            gpus: inventory.gpus.iter().map(of).collect(),
            reasons: self.reasons(),
        };
        self.write(status);
    }

    fn without_cards(&self) -> NodeStatus {
        NodeStatus {
            version: NodeStatus::VERSION,
            config: String::new(),
            driver: String::new(),
            shared_memory: self.ports.shared_memory,
            gpus: Vec::new(),
            reasons: self.reasons(),
        }
    }

    fn reasons(&self) -> Vec<ReasonText> {
        let problems = self.inventory_problem.iter().chain(&self.inputs.problem);
        problems.chain(&self.refusals).map(ReasonText::from).collect()
    }

    fn write(&mut self, status: NodeStatus) {
        if self.written.as_ref() == Some(&status) {
            self.status_is_written = true;
            return;
        }
        let written = write_document(&self.options.root.status(), &status);
        self.status_is_written = written.is_ok();
        match written {
            Ok(()) => self.written = Some(status),
            // Tried again at the next event, at the latest with the next inventory.
            Err(error) => warn!(%error, "status can't be written"),
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

/// The thread that waits for the driver's events.
pub(crate) fn watch_health(ports: &Ports, events: Sender<Event>) -> std::io::Result<()> {
    const WAIT: Duration = Duration::from_mins(1);
    const RETRY: Duration = Duration::from_secs(5);
    let inventory = Arc::clone(&ports.inventory);
    thread::Builder::new().name("health".to_owned()).spawn(move || {
        let mut has_complained = false;
        loop {
            match inventory.wait_for_event(WAIT) {
                Ok(None) => has_complained = false,
                Ok(Some(event)) => {
                    if events.send(Event::Health(event)).is_err() {
                        return;
                    }
                }
                Err(error) => {
                    if !has_complained {
                        warn!(%error, "driver events can't be read, retrying");
                        has_complained = true;
                    }
                    thread::park_timeout(RETRY);
                }
            }
        }
    })?;
    Ok(())
}
