//! Clients: admission and departure.

use std::os::fd::OwnedFd;
use std::thread;

use mpshare_sim_state::mps::{Accepted, AttachRequest, Event, Refusal, Reply, ServedDevice};
use mpshare_sim_state::wire::{Packets, Peer};

use super::cards::is_legacy;
use super::{Happening, Server};

/// An attached client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) key: u64,
    pub(crate) pid: i32,
    pub(crate) name: String,
    /// UUIDs of the cards that it sees.
    pub(crate) cards: Vec<String>,
    pub(crate) fate: Fate,
    connection: Packets,
}

/// Whether a client still works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Working,
    /// A fatal fault hit it; it can only exit.
    Sticky,
}

impl Client {
    /// Tells the client something. A dead one doesn't mind.
    pub(crate) fn tell(&self, event: Event) {
        drop(self.connection.send(&event));
    }
}

impl Server {
    pub(super) fn new_client(&mut self, request: AttachRequest, socket: OwnedFd) {
        let connection = Packets::from_socket(socket);
        let Ok(peer) = connection.peer() else {
            return;
        };
        self.log.say("Received new client request");
        if self.is_wedged() {
            leave_waiting(connection);
            return;
        }
        if let Err(refusal) = self.admit(peer) {
            drop(connection.send(&Reply::Refused(refusal)));
            return;
        }
        let reply = Reply::Accepted(Accepted {
            server: self.id.pid,
            client: peer.pid,
            devices: self.served_devices(),
            percent: self.percent.value(),
        });
        let Ok(reader) = connection.try_clone() else {
            return;
        };
        let key = self.next_key;
        self.next_key += 1;
        let all: Vec<String> = self.cards.iter().map(|card| card.uuid.clone()).collect();
        let cards = request.sees(&all);
        self.log_client(&cards);
        let client = Client {
            key,
            pid: peer.pid,
            name: request.name,
            cards,
            fate: Fate::Working,
            connection,
        };
        // A client that died in the queue is found gone by its reader.
        drop(client.connection.send(&reply));
        self.clients.push(client);
        let happenings = self.happenings.clone();
        thread::spawn(move || {
            // Clients say nothing more; what ends the wait is their end.
            while matches!(reader.receive::<AttachRequest>(), Ok(Some(_))) {}
            drop(happenings.send(Happening::ClientGone(key)));
        });
    }

    fn is_wedged(&self) -> bool {
        let me = self.id.pid;
        self.store.read().is_ok_and(|state| state.faults.wedged_servers.contains(&me))
    }

    fn admit(&mut self, peer: Peer) -> Result<(), Refusal> {
        self.look_for_fault();
        if self.watch.in_fault() {
            return Err(Refusal::ServerNotReady);
        }
        // Pascal takes one user only, whatever the flag (facts/mps.md 3).
        if self.settings.multi_user && peer.uid != 0 && self.cards.iter().any(is_legacy) {
            return Err(Refusal::NotPermitted);
        }
        let caps = self.cards.iter().map(|card| self.profile.most_clients(card.capability));
        if self.clients.len() >= caps.min().unwrap_or(0) {
            return Err(Refusal::MaxClients);
        }
        Ok(())
    }

    fn served_devices(&self) -> Vec<ServedDevice> {
        self.cards
            .iter()
            .map(|card| ServedDevice {
                uuid: card.uuid.clone(),
                limit_bytes: card.limit.map(mpshare_sim_state::mps::PinnedLimit::bytes),
            })
            .collect()
    }

    fn log_client(&self, uuids: &[String]) {
        self.log.say("Worker created");
        self.log.say("Creating worker thread...");
        for card in self.cards.iter().filter(|card| uuids.contains(&card.uuid)) {
            self.log.say(format!("Device {} (uuid {}) is associated", card.name, card.uuid));
        }
    }

    pub(super) fn client_gone(&mut self, key: u64) {
        let Some(place) = self.clients.iter().position(|client| client.key == key) else {
            return;
        };
        let client = self.clients.remove(place);
        self.log.say("Receive command failed, assuming client exit");
        self.log.say("Client process disconnected");
        if client.fate == Fate::Sticky {
            self.log.say(format!("Client {{{}, 1}} exit", client.pid));
        }
    }
}

/// Says nothing to a client for as long as it lives.
fn leave_waiting(connection: Packets) {
    thread::spawn(move || while matches!(connection.receive::<AttachRequest>(), Ok(Some(_))) {});
}
