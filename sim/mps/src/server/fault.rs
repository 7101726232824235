//! FAULT: a fatal fault of one client stops all that share cards with it, and keeps newcomers out
//! until those have exited (facts/mps.md 4.1).

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;

use mpshare_sim_state::mps::Event;
use mpshare_sim_state::{ProcessKind, SimState};

use super::Server;
use super::client::{Client, Fate};

/// `CUDA_ERROR_LAUNCH_FAILED`: what clients get when the fault was injected without an error.
const LAUNCH_FAILED: i32 = 719;

/// After so many looks at an unchanged file it is read all the same.
const MOST_SKIPPED: u32 = 10;

/// What the server knows of faults.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    health: Health,
    /// Inode and time of the node's state when it was last read: each change is a new file.
    seen: Option<(u64, i64, i64)>,
    /// Looks since the last reading.
    skipped: u32,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Health {
    #[default]
    Active,
    Fault,
}

impl Watch {
    pub(crate) fn in_fault(&self) -> bool {
        self.health == Health::Fault
    }
}

impl Server {
    /// Looks now and then, cheaply.
    pub(super) fn glance_for_fault(&mut self) {
        if self.watch.health == Health::Fault || self.node_changed() {
            self.look_for_fault();
        }
    }

    /// Goes to FAULT when the node says so, and back once the clients that it hit are gone.
    pub(super) fn look_for_fault(&mut self) {
        if self.watch.health == Health::Active && self.is_faulted() {
            self.enter_fault();
        }
        let waiting = self.clients.iter().any(|client| client.fate == Fate::Sticky);
        if self.watch.health == Health::Fault && !waiting {
            self.leave_fault();
        }
    }

    fn node_changed(&mut self) -> bool {
        let path = self.store.dir().join("state.json");
        let now = path.metadata().ok().map(|file| (file.ino(), file.mtime(), file.mtime_nsec()));
        // Two changes in one tick of the clock may bring the same inode back.
        let changed = now != self.watch.seen || self.watch.skipped >= MOST_SKIPPED;
        self.watch.skipped = if changed { 0 } else { self.watch.skipped + 1 };
        self.watch.seen = now;
        changed
    }

    fn is_faulted(&self) -> bool {
        let me = self.id.pid;
        self.store.read().is_ok_and(|state| state.faults.faulted_servers.contains(&me))
    }

    fn enter_fault(&mut self) {
        self.watch.health = Health::Fault;
        let server = self.id.pid;
        let pids: Vec<i32> = self.clients.iter().map(|client| client.pid).collect();
        // When the node can't be told, the clients are.
        let hit = self.store.update(|state| victims(state, server, &pids)).unwrap_or_default();
        for client in &mut self.clients {
            if let Some(error) = hit.get(&client.pid) {
                client.fate = Fate::Sticky;
                client.tell(Event::Sticky(*error));
            }
        }
        self.log_fault();
    }

    fn log_fault(&self) {
        let hit = || self.clients.iter().filter(|client| client.fate == Fate::Sticky);
        self.log.say("Volta MPS: Server is handling a fatal GPU error.");
        for client in hit() {
            self.log.say(format!("Volta MPS: status of client {{{}, 1}} is INACTIVE", client.pid));
        }
        self.log.say("Volta MPS: The following devices");
        for card in self.cards.iter().filter(|card| hit().any(|client| sees(client, &card.uuid))) {
            self.log.say(&card.uuid);
        }
        self.log.say("Volta MPS: The following clients have a sticky error set:");
        for client in hit() {
            self.log.say(client.pid.to_string());
        }
    }

    fn leave_fault(&mut self) {
        let me = self.id.pid;
        let forgotten = self.store.update(|state| {
            state.faults.faulted_servers.retain(|server| *server != me);
        });
        if forgotten.is_err() {
            return;
        }
        for (index, _) in self.cards.iter().enumerate() {
            self.log.say(format!("Destroy server context on device {index}"));
            self.log.say(format!("Creating server context on device {index}"));
        }
        self.watch.health = Health::Active;
    }
}

fn sees(client: &Client, uuid: &str) -> bool {
    client.cards.iter().any(|card| card == uuid)
}

/// The clients that a fault hit, with their errors: those that the node has marked, or everybody
/// when it has marked nobody; then it marks them.
fn victims(state: &mut SimState, server: i32, clients: &[i32]) -> BTreeMap<i32, i32> {
    let is_client = ProcessKind::MpsClient { server };
    let marked: BTreeMap<i32, i32> = state
        .processes
        .iter()
        .filter(|process| process.kind == is_client)
        .filter_map(|process| Some((process.id.pid, process.sticky_error?)))
        .collect();
    if !marked.is_empty() {
        return marked;
    }
    for process in state.processes.iter_mut().filter(|process| process.kind == is_client) {
        process.sticky_error = Some(LAUNCH_FAILED);
    }
    clients.iter().map(|pid| (*pid, LAUNCH_FAILED)).collect()
}
