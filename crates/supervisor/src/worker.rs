//! The thread that brings one card to where its plan wants it, and keeps watching it.
//!
//! A card of its own thread: one whose driver or daemon hangs holds up nobody else.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use mpshare_api::status::{ClientStatus, ReasonText};
use mpshare_api::{GpuState, GpuStatus};
use mpshare_core::{DriverVersion, Gpu, GpuPlan, Reason, VersionProfile};
use tracing::{info, warn};

use crate::card::{Card, CardError};
use crate::clients::Bypassing;
use crate::containment::{Containment, KnownShares};
use crate::death::DeathWatch;
use crate::drain;
use crate::event::Event;
use crate::farewell::EndingPods;
use crate::faults::Faults;
use crate::incidents::Incidents;
use crate::options::Options;
use crate::silence::Silence;
use crate::steps::{Holder, Step, next_step};
use crate::watchdog::Watchdog;

mod failing;
mod settled;

/// The first wait after a failure; doubles up to [`MAX_BACKOFF`].
const MIN_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// How often a starting server is looked at at first; less and less often the longer it takes.
const SERVER_POLL: Duration = Duration::from_millis(10);

/// How long a server that was asked for may take to show up at all.
const SERVER_GRACE: Duration = Duration::from_millis(500);

/// More steps than any way from one state to another has: past it something undoes what is done.
const MAX_STEPS: u32 = 12;

/// What the main thread tells a worker.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Command {
    /// What the card should be like.
    Assign(Box<Assignment>),
    /// A daemon or server of the card has died.
    Died(i32),
    /// The driver said something about the card that may be a server's trouble.
    Suspect,
    /// Everybody can read that the card is out of service, and the shares that were recorded until
    /// then are in the last assignment.
    Withdrawn,
}

/// What a card is, and what it should be like.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Assignment {
    /// The card: its index, its MIG mode and its driver may change while we run.
    pub gpu: Gpu,
    /// What the driver's MPS can do.
    pub profile: VersionProfile,
    /// The driver's version.
    pub driver: DriverVersion,
    /// The plan.
    pub plan: GpuPlan,
    /// Who has shares of the card.
    pub shares: KnownShares,
    /// Pods that are being deleted.
    pub ending: EndingPods,
}

/// How far a card has come.
#[derive(Debug, PartialEq)]
enum Progress {
    /// To where the plan wants it.
    Settled,
    /// To where it waits for something else to change.
    Waiting(Reason),
    /// To where something that isn't of the card keeps it from being shared.
    Refused(Reason),
    /// To where its server is starting.
    Starting,
    /// To where it has to be out of service for everybody first.
    Withdrawing,
}

pub(crate) struct Worker {
    pub card: Card,
    pub options: Options,
    pub commands: Receiver<Command>,
    /// Handed to the watch.
    pub to_self: Sender<Command>,
    /// Tells of the death of daemon and server.
    pub deaths: DeathWatch,
    pub events: Sender<Event>,
    pub state: Memory,
}

/// How far the world knows that the card is out of service.
#[derive(Debug, Default, PartialEq)]
enum Withdrawal {
    /// Not at all.
    #[default]
    None,
    /// The main thread was told.
    Announced,
    /// It is written.
    Known,
}

/// What a worker remembers between two looks; all of it can be lost.
#[derive(Default)]
pub(crate) struct Memory {
    assignment: Option<Assignment>,
    watched: BTreeSet<i32>,
    /// Since when a server has been asked for.
    server_wanted: Option<Instant>,
    withdrawal: Withdrawal,
    failures: u32,
    /// A daemon that hasn't answered lately.
    silence: Option<Silence>,
    /// What processes do past their shares.
    containment: Containment,
    bypassing: Bypassing,
    /// Whether the server takes clients.
    watchdog: Watchdog,
    /// What the server's fault did.
    faults: Faults,
    /// What happened lately.
    incidents: Incidents,
    reported: Option<GpuStatus>,
}

impl Worker {
    /// Works until the process ends.
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
            Command::Assign(assignment) => {
                self.card.gpu = assignment.gpu.clone();
                self.card.profile = assignment.profile;
                self.card.driver = Some(assignment.driver.clone());
                self.state.assignment = Some(*assignment);
            }
            Command::Withdrawn if self.state.withdrawal == Withdrawal::Announced => {
                self.state.withdrawal = Withdrawal::Known;
            }
            Command::Suspect => {
                self.card.servers.ask_next();
                self.state.watchdog.suspect();
            }
            // The plan changed back meanwhile.
            Command::Withdrawn => {}
            Command::Died(pid) => {
                self.state.watched.remove(&pid);
                self.note_lost_clients(pid);
                warn!(gpu = %self.card.gpu.uuid, pid, "MPS daemon or server ended");
            }
        }
    }

    /// Brings the card as far as it goes now, reports, and says when to look again.
    fn reconcile(&mut self, assignment: &Assignment) -> Duration {
        let plan = &assignment.plan;
        let mut status = GpuStatus::starting(&self.card.gpu);
        plan.generation.as_str().clone_into(&mut status.generation);
        let wait = match self.steps(plan) {
            Ok(progress) => {
                self.answered();
                self.progressed(&progress, plan, &mut status)
            }
            Err(error) => self.failed(&error, plan, &mut status),
        };
        drain::tell(plan, &mut status);
        if plan.replicas == 0 && plan.units.is_empty() && status.state == GpuState::Ready {
            status.state = GpuState::Refused;
        }
        self.report_with_findings(status);
        wait
    }

    fn progressed(
        &mut self,
        progress: &Progress,
        plan: &GpuPlan,
        status: &mut GpuStatus,
    ) -> Duration {
        let (state, pending) = match progress {
            Progress::Settled => (GpuState::Ready, None),
            Progress::Waiting(reason) => (GpuState::Draining, Some(reason)),
            Progress::Refused(reason) => (GpuState::Refused, Some(reason)),
            Progress::Starting | Progress::Withdrawing => (GpuState::Starting, None),
        };
        status.state = state;
        status.reason = pending.or(plan.reason.as_ref()).map(ReasonText::from);
        // One more attempt to get a server isn't news while what foils it stays.
        if let (Progress::Starting, Some(before)) = (progress, &self.state.reported)
            && before.state == GpuState::Fault
            && self.state.failures > 0
        {
            (status.state, status.reason) = (before.state, before.reason.clone());
        }
        let wait = self.watch(plan, status);
        match progress {
            Progress::Settled | Progress::Waiting(_) | Progress::Refused(_) => {
                self.state.failures = 0;
                self.state.withdrawal = Withdrawal::None;
            }
            Progress::Starting | Progress::Withdrawing => {}
        }
        match progress {
            Progress::Settled | Progress::Withdrawing => wait,
            Progress::Waiting(_) | Progress::Refused(_) => wait.min(self.options.busy_interval),
            Progress::Starting => {
                let starting_for = self.card.servers.starting_for(Instant::now());
                server_poll(starting_for, self.options.busy_interval)
            }
        }
    }

    /// Steps until nothing is left to do now.
    fn steps(&mut self, plan: &GpuPlan) -> Result<Progress, CardError> {
        for _ in 0..MAX_STEPS {
            let seen = self.card.look(plan)?;
            let step = next_step(&plan.hosting, &seen);
            if let Holder::Ours(pid) = seen.daemon {
                self.watch_death(pid);
            }
            match step {
                Step::Settled => {
                    self.state.server_wanted = None;
                    return Ok(Progress::Settled);
                }
                Step::Wait(reason) => return Ok(Progress::Waiting(reason)),
                Step::Refuse(reason) => return Ok(Progress::Refused(reason)),
                Step::AwaitServer => return Ok(Progress::Starting),
                Step::StartServer if self.state.server_wanted.is_some() => {
                    return self.start_server_again(plan);
                }
                Step::StartServer => self.state.server_wanted = Some(Instant::now()),
                Step::SetComputeMode
                | Step::RestoreComputeMode
                | Step::Start(_)
                | Step::Apply(_)
                | Step::EndServer
                | Step::EndDaemon
                | Step::Quit(_)
                | Step::EndStray(_) => {}
            }
            if step.disrupts() && !self.is_withdrawn(plan) {
                return Ok(Progress::Withdrawing);
            }
            if step == Step::EndServer {
                self.note_replaced_server();
            }
            self.card.perform(&step, plan)?;
        }
        Err(CardError::Unsteady)
    }

    /// Whether nobody counts on the card any more. Otherwise a container could be let in by the
    /// last report in the very moment in which its daemon is taken away.
    fn is_withdrawn(&mut self, plan: &GpuPlan) -> bool {
        match self.state.withdrawal {
            Withdrawal::Known => return true,
            Withdrawal::Announced => return false,
            Withdrawal::None => {}
        }
        let mut status = GpuStatus::starting(&self.card.gpu);
        plan.generation.as_str().clone_into(&mut status.generation);
        drain::tell(plan, &mut status);
        self.report_with_findings(status);
        self.state.withdrawal = Withdrawal::Announced;
        // Nobody listens any more only when the process is ending.
        drop(self.events.send(Event::Withdraw(self.card.gpu.uuid.clone())));
        false
    }

    /// A server that was asked for isn't there. The daemon gives up after a failed attempt, so it
    /// is asked again from time to time; by then it is known who is in the way, if anybody is.
    fn start_server_again(&mut self, plan: &GpuPlan) -> Result<Progress, CardError> {
        let since = *self.state.server_wanted.get_or_insert_with(Instant::now);
        if since.elapsed() < SERVER_GRACE {
            return Ok(Progress::Starting);
        }
        let reason = self.card.no_server();
        if self.state.failures == 0
            && let Some(said) = self.card.server_failure(plan)
        {
            warn!(gpu = %self.card.gpu.uuid, said, "no MPS server came up");
        }
        self.state.server_wanted = Some(Instant::now());
        self.card.perform(&Step::StartServer, plan)?;
        Err(CardError::Server(reason))
    }

    fn watch_death(&mut self, pid: i32) {
        if !self.state.watched.insert(pid) {
            return;
        }
        if let Err(error) = self.deaths.tell(pid, self.to_self.clone()) {
            warn!(pid, %error, "can't wait for a process's end, polling it");
        }
    }

    /// What there is to tell beside the card's state.
    fn findings(&mut self) -> Vec<ReasonText> {
        let now = Instant::now();
        for command in self.card.overheard.news() {
            let gpu = self.card.gpu.uuid.clone();
            self.state.incidents.note(Reason::TamperedWith { gpu, command }, [], now);
        }
        self.state.incidents.expire(now);
        let mut findings = self.state.containment.findings();
        findings.extend(self.state.incidents.findings());
        findings
    }

    /// Clients can't outlive their server, which ends with its daemon at the latest when that is
    /// started again.
    fn note_lost_clients(&mut self, ended: i32) {
        let reported = self.state.reported.as_ref();
        let Some(daemon) = reported.and_then(|status| status.daemon.as_ref()) else { return };
        let Some(server) = daemon.server.filter(|server| [*server, daemon.pid].contains(&ended))
        else {
            return;
        };
        if daemon.clients.is_empty() || self.card.hopeless().is_some() {
            return;
        }
        let pids = daemon.clients.iter().map(|client| client.pid).collect();
        let reason = Reason::ServerLost { gpu: self.card.gpu.uuid.clone(), server, pids };
        self.state.incidents.note(reason, pods_of(&daemon.clients), Instant::now());
    }

    fn note_replaced_server(&mut self) {
        let Some((server, why)) = self.card.hopeless() else { return };
        let reported = self.state.reported.as_ref();
        let daemon = reported.and_then(|status| status.daemon.as_ref());
        let pods = daemon.into_iter().flat_map(|daemon| pods_of(&daemon.clients));
        let gpu = self.card.gpu.uuid.clone();
        let reason = Reason::ServerReplaced { gpu, server: server.pid.get(), why: why.to_owned() };
        self.state.incidents.note(reason, pods, Instant::now());
    }

    fn report_with_findings(&mut self, mut status: GpuStatus) {
        status.findings = self.findings();
        status.outside_mib = self.state.containment.outside().mib();
        self.report(status);
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

fn pods_of(clients: &[ClientStatus]) -> impl Iterator<Item = String> {
    clients.iter().filter_map(|client| client.pod_uid.clone())
}

/// Starts a worker's thread.
pub(crate) fn spawn(worker: Worker) -> std::io::Result<()> {
    let name = worker.card.gpu.uuid.short().to_owned();
    thread::Builder::new().name(name).spawn(move || worker.run())?;
    Ok(())
}

/// Each look at a starting server is a process or two, and one that hangs does so for ever.
fn server_poll(starting_for: Duration, most: Duration) -> Duration {
    (starting_for / 8).min(most).max(SERVER_POLL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_hangs_at_its_start_is_looked_at_less_and_less_often() {
        let most = Duration::from_secs(1);
        let poll = |millis| server_poll(Duration::from_millis(millis), most);
        assert_eq!(poll(0), SERVER_POLL);
        assert_eq!(poll(800), Duration::from_millis(100));
        assert_eq!(poll(3_600_000), most);
    }
}
