//! What is watched on a card that is as its plan wants it: server, clients, and what they do.

use std::time::{Duration, Instant};

use mpshare_api::status::{ClientStatus, DaemonStatus, LimitsStatus, ReasonText};
use mpshare_api::{GpuState, GpuStatus};
use mpshare_core::{GpuPlan, Hosting, Memory, Reason, Unit};
use mpshare_mps::{ControlDaemon, Depth, Pid};

use super::Worker;
use crate::clients;
use crate::containment::{self, Session};
use crate::faults;
use crate::servers::Load;
use crate::waiting;
use crate::watchdog::Patient;

/// A canary takes memory only where that much is free: elsewhere it might be what a client is just about to
/// take of its share.
const HEADROOM: Memory = Memory::from_mib(2048);

impl Worker {
    /// Servers and clients of a settled card; the wait until the next look.
    pub(super) fn watch(&mut self, plan: &GpuPlan, status: &mut GpuStatus) -> Duration {
        let daemon = match self.card.planned_daemon(plan) {
            Ok(Some(daemon)) => daemon,
            Ok(None) => return self.watch_whole_card(plan, status),
            Err(error) => return self.failed(&error, plan, status),
        };
        let Some((process, limits)) = self.card.verified else {
            return self.options.busy_interval;
        };
        let mut clients = clients::of_card(&self.card.ports, &self.card.gpu.uuid)
            .unwrap_or_else(|| self.reported_clients());
        let canary = self.state.watchdog.pid();
        clients.retain(|client| Some(client.pid) != canary);
        self.card.load = if clients.is_empty() { Load::Idle } else { Load::Busy };
        if let Some(reason) = self.look_after_server(&*daemon, &clients) {
            status.state = GpuState::Fault;
            status.reason = Some(ReasonText::from(&reason));
        }
        if let Some(server) = self.card.servers.pid() {
            self.watch_death(server.get());
            // Where one server takes all users nobody waits for another's, and the log needn't be read.
            if status.reason.is_none() && !self.card.serves_all_users() {
                let (gpu, proc) = (&self.card.gpu.uuid, &self.card.ports.host_proc);
                let waits = waiting::reason(gpu, &*daemon, proc, (server, &clients));
                status.reason = waits.as_ref().map(ReasonText::from);
            }
        }
        let server = self.card.servers.pid();
        let bypassing = &mut self.state.bypassing;
        bypassing.refresh(&self.card.ports, &self.card.gpu.uuid, (server, &clients));
        let mut users = [clients.as_slice(), bypassing.processes()].concat();
        users.retain(|user| Some(user.pid) != canary);
        self.contain(plan, &users);
        let is_busy = !users.is_empty()
            || plan.units.iter().any(Unit::is_held)
            || status.state == GpuState::Fault
            || self.state.containment.is_busy()
            || self.state.watchdog.is_busy()
            || self.card.overheard.awaits_somebody();
        status.daemon = Some(DaemonStatus {
            pid: process.pid.get(),
            pipe_directory: daemon.site().pipe.to_string(),
            server: self.card.servers.pid().map(Pid::get),
            limits: Some(LimitsStatus::from(limits)),
            clients,
        });
        let wait = if is_busy { self.options.busy_interval } else { self.options.idle_interval };
        self.state.containment.next_within(wait, &self.options.containment)
    }

    /// What is wrong with the server, and whether it has to be replaced.
    fn look_after_server(
        &mut self,
        daemon: &dyn ControlDaemon,
        clients: &[ClientStatus],
    ) -> Option<Reason> {
        let now = Instant::now();
        let gpu = self.card.gpu.uuid.clone();
        self.send_canaries(daemon, clients, now);
        let wedged = self.state.watchdog.trouble(&gpu, clients.len());
        let grace = self.options.fault_grace;
        let scene = faults::Scene {
            gpu: &gpu,
            proc: &self.card.ports.host_proc,
            faulted: self.card.servers.faulted(),
            clients,
            grace,
        };
        for news in self.state.faults.look(&scene, now) {
            self.state.incidents.note(news.reason, news.pods, now);
        }
        let why = if self.state.faults.is_beyond_hope(grace, now) {
            Some("stayed in FAULT")
        } else if wedged.is_some() && clients.is_empty() {
            Some("took no new clients")
        } else {
            None
        };
        self.card.given_up = self.card.servers.server().zip(why);
        self.card.trouble().or(wedged)
    }

    fn send_canaries(
        &mut self,
        daemon: &dyn ControlDaemon,
        clients: &[ClientStatus],
        now: Instant,
    ) {
        let Some(server) = self.card.servers.server() else { return };
        let proc = &self.card.ports.host_proc;
        let is_on_card = |pid: Pid| clients.iter().any(|client| client.pid == pid.get());
        let is_alive = |pid: Pid| proc.identify(pid).is_ok_and(|found| found.is_some());
        if self.card.overheard.is_somebody_unserved(now, is_on_card, is_alive) {
            self.state.watchdog.suspect();
        }
        let used: Memory =
            clients.iter().filter_map(|client| client.memory_mib.map(Memory::from_mib)).sum();
        let has_room = self.card.gpu.memory.saturating_sub(used) >= HEADROOM;
        let card = &self.card;
        let depth = || {
            let depth = if has_room { Depth::Allocate } else { Depth::Connect };
            card.takes_our_user(server.pid).then_some(depth)
        };
        let rules = &self.options.canary;
        let patient = Patient { gpu: &card.gpu.uuid, server, daemon };
        self.state.watchdog.look(patient, rules, now, depth);
    }

    /// Looks for processes that use more than they were given.
    fn contain(&mut self, plan: &GpuPlan, users: &[ClientStatus]) {
        let super::Memory { assignment: Some(assignment), containment, .. } = &mut self.state
        else {
            return;
        };
        let server = self.card.servers.pid().filter(|_| plan.hosting != Hosting::Exclusive);
        let scene = containment::Scene {
            gpu: &self.card.gpu.uuid,
            root: &self.card.root,
            host_proc: &self.card.ports.host_proc,
            cgroup_proc: &self.card.ports.cgroup_proc,
            rules: &self.options.containment,
            shares: &assignment.shares,
            ending: &assignment.ending,
            server,
        };
        let session = || {
            let daemon = self.card.planned_daemon(plan).ok()??;
            Some(Session { daemon, server: server? })
        };
        containment.look(&scene, users, Instant::now(), session);
    }

    /// Without a daemon there are only the processes to look at.
    fn watch_whole_card(&mut self, plan: &GpuPlan, status: &mut GpuStatus) -> Duration {
        if plan.hosting == Hosting::Exclusive {
            let listed = clients::on_whole_card(&self.card.ports, &self.card.gpu.uuid);
            let before = || self.state.reported.as_ref().map(|status| status.processes.clone());
            status.processes = listed.or_else(before).unwrap_or_default();
        }
        self.contain(plan, &status.processes);
        let is_busy = !status.processes.is_empty() || plan.units.iter().any(Unit::is_held);
        if is_busy { self.options.busy_interval } else { self.options.idle_interval }
    }

    /// Those of the last report: a driver that doesn't tell hasn't ended anybody.
    fn reported_clients(&self) -> Vec<ClientStatus> {
        let daemon = self.state.reported.as_ref().and_then(|status| status.daemon.as_ref());
        daemon.map(|daemon| daemon.clients.clone()).unwrap_or_default()
    }
}
