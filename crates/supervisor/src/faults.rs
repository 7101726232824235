//! A server in FAULT: who was hit, who lingers, and when it is beyond hope.
//!
//! A client's fatal error takes the contexts of all clients of the card, and the server takes no new
//! ones until each of them has ended (facts/mps.md 4.1). Programs that pass over errors never do, so
//! after a grace period they are ended; they have no work in flight any more, so signals do. Where
//! that doesn't bring the server back either, it is replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use mpshare_api::status::ClientStatus;
use mpshare_core::{GpuUuid, Reason};
use mpshare_mps::{Pid, Proc, ProcessId};
use tracing::{info, warn};

use crate::containment::{Ending, Fate, Victim};

/// A server without clients recovers within milliseconds to a second (facts/mps.md 4.1); from here
/// on it doesn't.
const RECOVERY: Duration = Duration::from_secs(10);

/// So long after the grace period clients that can't be ended hold it up no more.
const STUCK: Duration = Duration::from_mins(1);

/// What a card's server is going through.
#[derive(Default)]
pub(crate) struct Faults {
    fault: Option<Fault>,
    ending: Option<Ending>,
}

struct Fault {
    server: ProcessId,
    since: Instant,
    /// Since when it has had no clients.
    empty_since: Option<Instant>,
    /// Who was hit, and the pod of each.
    hit: BTreeMap<ProcessId, Option<String>>,
}

/// Something to be told, and whom it concerns.
pub(crate) struct News {
    pub reason: Reason,
    pub pods: BTreeSet<String>,
}

/// What a look is about.
pub(crate) struct Scene<'a> {
    pub gpu: &'a GpuUuid,
    pub proc: &'a Proc,
    /// The server that is in FAULT.
    pub faulted: Option<ProcessId>,
    /// The clients now.
    pub clients: &'a [ClientStatus],
    /// For so long they may end by themselves.
    pub grace: Duration,
}

impl Faults {
    /// Looks; what has happened.
    pub(crate) fn look(&mut self, scene: &Scene<'_>, now: Instant) -> Vec<News> {
        let mut news = self.ended(scene);
        let Some(server) = scene.faulted else {
            if let Some(fault) = self.fault.take() {
                let lasted = now.duration_since(fault.since);
                info!(gpu = %scene.gpu, server = %fault.server, ?lasted, "the MPS server is out of FAULT");
            }
            return news;
        };
        if self.fault.as_ref().is_none_or(|fault| fault.server != server) {
            self.fault =
                Some(Fault { server, since: now, empty_since: None, hit: BTreeMap::new() });
        }
        let Some(fault) = &mut self.fault else { return news };
        let were_hit = fault.hit.len();
        fault.hit.extend(scene.clients.iter().filter_map(|client| {
            let id = scene.proc.identify(Pid::new(client.pid)?).ok()??;
            Some((id, client.pod_uid.clone()))
        }));
        if fault.hit.len() > were_hit {
            let reason = Reason::ServerFault { gpu: scene.gpu.clone(), server: server.pid.get() };
            news.push(News { reason, pods: fault.hit.values().flatten().cloned().collect() });
        }
        if scene.clients.is_empty() {
            fault.empty_since.get_or_insert(now);
        } else {
            fault.empty_since = None;
        }
        if self.ending.is_none() && now.duration_since(fault.since) >= scene.grace {
            self.ending = end_lingerers(scene, fault);
        }
        news
    }

    /// Those that were being ended.
    fn ended(&mut self, scene: &Scene<'_>) -> Vec<News> {
        let Some(ending) = self.ending.take_if(|ending| ending.is_finished()) else {
            return Vec::new();
        };
        let mut news = Vec::new();
        for (victim, fate) in ending.fates() {
            match fate {
                Fate::Ended => news
                    .push(News { reason: victim.reason, pods: victim.pod.into_iter().collect() }),
                Fate::Gone => {}
                Fate::Stays => {
                    warn!(gpu = %scene.gpu, pid = %victim.id, "process doesn't end by SIGKILL");
                }
            }
        }
        news
    }

    /// Whether the server won't come back by itself.
    pub(crate) fn is_beyond_hope(&self, grace: Duration, now: Instant) -> bool {
        let Some(fault) = &self.fault else { return false };
        let is_empty = |since: Instant| now.duration_since(since) >= RECOVERY;
        fault.empty_since.is_some_and(is_empty) || now.duration_since(fault.since) >= grace + STUCK
    }
}

fn end_lingerers(scene: &Scene<'_>, fault: &Fault) -> Option<Ending> {
    let lingers = |id: &ProcessId| scene.clients.iter().any(|it| it.pid == id.pid.get());
    let victims: Vec<Victim> = fault
        .hit
        .iter()
        .filter(|(id, _)| lingers(id))
        .map(|(id, pod)| {
            let (gpu, pid) = (scene.gpu.clone(), id.pid.get());
            let reason = Reason::LingererEnded { gpu, pid, server: fault.server.pid.get() };
            Victim { id: *id, pod: pod.clone(), reason }
        })
        .collect();
    if victims.is_empty() {
        return None;
    }
    info!(gpu = %scene.gpu, count = victims.len(), "ending processes that linger after a fault");
    // The server is in no state to terminate anybody.
    Ending::start(scene.proc.clone(), victims, None)
        .inspect_err(|error| warn!(gpu = %scene.gpu, %error, "can't start a thread, trying again"))
        .ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    const GRACE: Duration = Duration::from_secs(10);

    /// A process that ends with the test.
    struct Real(Child);

    impl Drop for Real {
        fn drop(&mut self) {
            drop(self.0.kill());
            drop(self.0.wait());
        }
    }

    fn process() -> (Real, ClientStatus) {
        let child = Command::new("/bin/sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        let client = ClientStatus {
            pid: i32::try_from(child.id()).unwrap(),
            memory_mib: Some(1),
            pod_uid: Some(format!("pod-of-{}", child.id())),
            container_id: None,
        };
        (Real(child), client)
    }

    fn server() -> ProcessId {
        ProcessId { pid: Pid::new(1).unwrap(), start: 1 }
    }

    struct World {
        gpu: GpuUuid,
        proc: Proc,
        faults: Faults,
    }

    impl World {
        fn new() -> Self {
            let gpu = "GPU-ab".parse().unwrap();
            Self { gpu, proc: Proc::default(), faults: Faults::default() }
        }

        fn look(
            &mut self,
            faulted: Option<ProcessId>,
            clients: &[ClientStatus],
            now: Instant,
        ) -> Vec<(&'static str, Vec<String>)> {
            let scene = Scene { gpu: &self.gpu, proc: &self.proc, faulted, clients, grace: GRACE };
            let news = self.faults.look(&scene, now);
            news.into_iter().map(|it| (it.reason.code(), it.pods.into_iter().collect())).collect()
        }
    }

    #[test]
    fn each_pod_that_was_hit_is_told_once() {
        let (mut world, begin) = (World::new(), Instant::now());
        let ((_a, one), (_b, two)) = (process(), process());
        assert_eq!(world.look(None, std::slice::from_ref(&one), begin), []);
        let told = world.look(Some(server()), &[one.clone(), two.clone()], begin);
        let mut both = vec![one.pod_uid.clone().unwrap(), two.pod_uid.clone().unwrap()];
        both.sort_unstable();
        assert_eq!(told, [("ServerFault", both)]);
        assert_eq!(world.look(Some(server()), &[one, two], begin), []);
    }

    #[test]
    fn who_lingers_past_the_grace_period_is_ended_and_its_pod_told() {
        let (mut world, begin) = (World::new(), Instant::now());
        let (mut lingers, client) = process();
        world.look(Some(server()), std::slice::from_ref(&client), begin);
        world.look(Some(server()), std::slice::from_ref(&client), begin + GRACE / 2);
        assert!(lingers.0.try_wait().unwrap().is_none());
        world.look(Some(server()), std::slice::from_ref(&client), begin + GRACE);
        lingers.0.wait().unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        let told = loop {
            let told = world.look(Some(server()), &[], begin + GRACE);
            if !told.is_empty() {
                break told;
            }
            assert!(Instant::now() < until);
            std::thread::yield_now();
        };
        assert_eq!(told, [("LingererEnded", vec![client.pod_uid.unwrap()])]);
    }

    #[test]
    fn a_server_is_beyond_hope_when_it_stays_so_without_clients_or_cannot_get_rid_of_them() {
        let (mut world, begin) = (World::new(), Instant::now());
        world.look(Some(server()), &[], begin);
        assert!(!world.faults.is_beyond_hope(GRACE, begin + RECOVERY / 2));
        assert!(world.faults.is_beyond_hope(GRACE, begin + RECOVERY));
        world.look(None, &[], begin);
        assert!(!world.faults.is_beyond_hope(GRACE, begin + RECOVERY));
        // A client that is listed and isn't there, so that nobody can end it.
        let stuck =
            ClientStatus { pid: i32::MAX, memory_mib: None, pod_uid: None, container_id: None };
        world.look(Some(server()), &[stuck], begin);
        assert!(!world.faults.is_beyond_hope(GRACE, begin + RECOVERY));
        assert!(world.faults.is_beyond_hope(GRACE, begin + GRACE + STUCK));
    }
}
