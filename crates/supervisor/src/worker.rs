//! The thread that brings one card to where its plan wants it, and keeps watching it.
//!
//! A card of its own thread: one whose driver or daemon hangs holds up nobody else.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use mpshare_api::status::{DaemonStatus, LimitsStatus, ReasonText};
use mpshare_api::{GpuState, GpuStatus};
use mpshare_core::{GpuPlan, Reason, Unit};
use tracing::{info, warn};

use crate::card::{Card, CardError};
use crate::clients::{self, ServerView};
use crate::death;
use crate::event::Event;
use crate::options::Options;
use crate::steps::{Holder, Step, next_step};

/// The first wait after a failure; doubles up to [`MAX_BACKOFF`].
const MIN_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// More steps than any way from one state to another has: past it something undoes what is done.
const MAX_STEPS: u32 = 12;

/// What the main thread tells a worker.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Command {
    /// What the card should be like, and what ails it.
    Assign(Box<Assignment>),
    /// The card's daemon, as watched since it was last seen, has died.
    DaemonDied,
}

/// What a card should be like, and what ails it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Assignment {
    /// The plan.
    pub plan: GpuPlan,
    /// Why the card can't be used at the moment, whatever the plan.
    pub ailment: Option<Reason>,
}

pub(crate) struct Worker {
    pub card: Card,
    pub options: Options,
    pub commands: Receiver<Command>,
    /// Handed to the thread that waits for the daemon's death.
    pub to_self: Sender<Command>,
    pub events: Sender<Event>,
    pub state: Memory,
}

/// What a worker remembers between two looks; all of it can be lost.
#[derive(Default)]
pub(crate) struct Memory {
    assignment: Option<Assignment>,
    watched: Option<i32>,
    servers: ServerView,
    failures: u32,
    reported: Option<GpuStatus>,
}

impl Worker {
    /// Works until the main thread is gone.
    pub(crate) fn run(mut self) {
        let mut wait = Duration::ZERO;
        loop {
            match self.commands.recv_timeout(wait) {
                Ok(command) => self.take(command),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            while let Ok(command) = self.commands.try_recv() {
                self.take(command);
            }
            let Some(assignment) = self.state.assignment.clone() else {
                wait = self.options.idle_interval;
                continue;
            };
            wait = self.reconcile(&assignment);
        }
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Assign(assignment) => self.state.assignment = Some(*assignment),
            Command::DaemonDied => {
                self.state.watched = None;
                warn!(gpu = %self.card.gpu.uuid, "MPS control daemon died");
            }
        }
    }

    /// Brings the card as far as it goes now, reports, and says when to look again.
    fn reconcile(&mut self, assignment: &Assignment) -> Duration {
        let plan = &assignment.plan;
        let mut status = GpuStatus::starting(&self.card.gpu);
        plan.generation.as_str().clone_into(&mut status.generation);
        let wait = match self.steps(plan) {
            Ok(pending) => {
                self.state.failures = 0;
                status.state = if pending.is_some() {
                    GpuState::Draining
                } else {
                    GpuState::Ready
                };
                status.reason = pending
                    .as_ref()
                    .or(plan.reason.as_ref())
                    .map(ReasonText::from);
                self.watch(plan, &mut status)
            }
            Err(error) => self.failed(&error, &mut status),
        };
        if plan.replicas == 0 && plan.units.is_empty() && status.state == GpuState::Ready {
            status.state = GpuState::Refused;
        }
        if let Some(ailment) = &assignment.ailment {
            let is_lost = matches!(ailment, Reason::GpuLost { .. });
            status.state = if is_lost {
                GpuState::Absent
            } else {
                GpuState::Fault
            };
            status.reason = Some(ailment.into());
        }
        self.report(status);
        wait
    }

    /// Steps until nothing is left to do now; what it waits for, if it waits.
    fn steps(&mut self, plan: &GpuPlan) -> Result<Option<Reason>, CardError> {
        for _ in 0..MAX_STEPS {
            let seen = self.card.look(plan)?;
            let step = next_step(&plan.hosting, &seen);
            if step == Step::Settled {
                self.watch_daemon(seen.daemon);
                return Ok(None);
            }
            if let Step::Wait(reason) = step {
                return Ok(Some(reason));
            }
            self.announce(&step, plan);
            self.card.perform(&step, plan)?;
        }
        Err(CardError::Unsteady)
    }

    /// Before a step that takes the card out of service.
    fn announce(&mut self, step: &Step, plan: &GpuPlan) {
        if matches!(step, Step::Start(_) | Step::Quit(_)) {
            let mut status = GpuStatus::starting(&self.card.gpu);
            plan.generation.as_str().clone_into(&mut status.generation);
            self.report(status);
        }
    }

    fn watch_daemon(&mut self, holder: Holder) {
        let Holder::Ours(pid) = holder else { return };
        if self.state.watched == Some(pid) {
            return;
        }
        match death::watch(pid, self.to_self.clone()) {
            Ok(()) => self.state.watched = Some(pid),
            Err(error) => warn!(pid, %error, "can't wait for the MPS daemon's end, polling it"),
        }
    }

    /// Servers and clients of a settled card; the wait until the next look.
    fn watch(&mut self, plan: &GpuPlan, status: &mut GpuStatus) -> Duration {
        let daemon = match self.card.planned_daemon(plan) {
            Ok(Some(daemon)) => daemon,
            Ok(None) => return self.options.idle_interval,
            Err(error) => return self.failed(&error, status),
        };
        let Some((process, limits)) = self.card.verified else {
            return MIN_BACKOFF;
        };
        let now = Instant::now();
        let ports = &self.card.ports;
        let clients = clients::of_card(ports, &self.card.gpu.uuid);
        let servers = &mut self.state.servers;
        if let Some(reason) = servers.look(daemon.as_ref(), &clients, now) {
            status.state = GpuState::Fault;
            status.reason = Some(ReasonText::from(&reason));
        }
        let is_busy = !clients.is_empty() || plan.units.iter().any(Unit::is_held);
        status.daemon = Some(DaemonStatus {
            pid: process.pid.get(),
            pipe_directory: daemon.site().pipe.to_string(),
            shm_directory: daemon.site().shm.display().to_string(),
            server: servers.pid(),
            limits: Some(LimitsStatus::from(limits)),
            clients,
        });
        if is_busy {
            self.options.busy_interval
        } else {
            self.options.idle_interval
        }
    }

    fn failed(&mut self, error: &CardError, status: &mut GpuStatus) -> Duration {
        let gpu = self.card.gpu.uuid.clone();
        let reason = error.reason(&gpu);
        if self.state.failures == 0 {
            warn!(%gpu, %reason, "card isn't usable, retrying");
        }
        let backoff = MIN_BACKOFF.saturating_mul(1 << self.state.failures.min(7));
        self.state.failures = self.state.failures.saturating_add(1);
        match self.state.reported.as_ref().filter(|_| error.is_passing()) {
            Some(before) => *status = before.clone(),
            None => status.state = GpuState::Fault,
        }
        status.reason = Some(ReasonText::from(&reason));
        backoff.min(MAX_BACKOFF)
    }

    fn report(&mut self, status: GpuStatus) {
        if self.state.reported.as_ref() == Some(&status) {
            return;
        }
        let before = self.state.reported.as_ref().map(|status| status.state);
        if before != Some(status.state) {
            info!(
                gpu = %self.card.gpu.uuid, state = %status.state, generation = status.generation,
                reason = status.reason.as_ref().map(|reason| reason.message.as_str()),
                "card"
            );
        }
        self.state.reported = Some(status.clone());
        // Nobody listens any more only when the process is ending.
        drop(self.events.send(Event::Report(Box::new(status))));
    }
}

/// Starts a worker's thread.
pub(crate) fn spawn(worker: Worker) -> std::io::Result<()> {
    let name = worker.card.gpu.uuid.short().to_owned();
    thread::Builder::new()
        .name(name)
        .spawn(move || worker.run())?;
    Ok(())
}
