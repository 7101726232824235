//! Has clients terminated whose pods are about to be killed: who that is, is decided by
//! [`crate::farewell`].

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use mpshare_api::status::ClientStatus;
use mpshare_mps::{Pid, ProcessId};
use tracing::{info, warn};

use super::Scene;
use super::ending::{Session, Termination};
use crate::farewell::Farewells;

/// What is remembered of them.
#[derive(Default)]
pub(super) struct Leaving {
    farewells: Farewells,
    work: Option<Termination>,
}

impl Leaving {
    /// Terminates whose time has come, but for those that are being ended already.
    pub(super) fn look(
        &mut self,
        scene: &Scene<'_>,
        users: &[ClientStatus],
        (now, being_ended): (Instant, &BTreeSet<ProcessId>),
        session: impl Fn() -> Option<Session>,
    ) {
        self.farewells.observe(scene.ending, now);
        let is_working = self.work.as_ref().is_some_and(|work| !work.is_finished());
        // Without a server nobody is a client.
        if is_working || scene.server.is_none() {
            return;
        }
        self.work = None;
        let due = users.iter().filter_map(|user| self.due(scene, user, now));
        let due = due.filter(|id| !being_ended.contains(id)).collect();
        let whom = self.farewells.whom(&due);
        if whom.is_empty() {
            return;
        }
        let Some(session) = session() else { return };
        for pid in &whom {
            info!(gpu = %scene.gpu, %pid, "terminating a client whose pod is about to be killed");
        }
        match Termination::start(scene.host_proc.clone(), whom, session) {
            Ok(work) => self.work = Some(work),
            Err(error) => warn!(gpu = %scene.gpu, %error, "can't start a thread, trying again"),
        }
    }

    /// Whether a process is on its way already.
    pub(super) fn has(&self, id: &ProcessId) -> bool {
        self.farewells.has_tried(id)
    }

    /// In how long to look again at the latest.
    pub(super) fn next(&self, now: Instant) -> Option<Duration> {
        self.farewells.next(now)
    }

    /// A process whose pod is due, as exactly that process.
    fn due(&self, scene: &Scene<'_>, user: &ClientStatus, now: Instant) -> Option<ProcessId> {
        let pod = user.pod_uid.as_ref().filter(|pod| self.farewells.is_due(pod, now))?;
        let pid = Pid::new(user.pid)?;
        let id = scene.host_proc.identify(pid).ok()??;
        // The id may have been another's when the pod was read.
        let home = scene.cgroup_proc.container(pid).ok()??;
        let is_same = home.pod.as_str() == pod && scene.host_proc.identify(pid).ok()?? == id;
        is_same.then_some(id)
    }
}
