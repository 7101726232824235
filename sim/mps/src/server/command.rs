//! What the daemon asks of a server.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::OwnedFd;

use mpshare_sim_state::ProcessKind;
use mpshare_sim_state::mps::{Event, Percent, PinnedLimit, ServerCommand, ServerReply};

use super::cards::named;
use super::client::Client;
use super::{Leaving, Server};

/// How much of a UUID `ps` shows.
const PARTIAL_UUID: usize = 22;

impl Server {
    /// Carries a command out and answers it, if it has an answer.
    pub(super) fn obey(&mut self, command: ServerCommand, fd: Option<OwnedFd>) {
        let reply = match command {
            ServerCommand::Client(request) => {
                if let Some(socket) = fd {
                    self.new_client(request, socket);
                }
                return;
            }
            ServerCommand::Leave => {
                self.leaving = Leaving::AfterLastClient;
                return;
            }
            ServerCommand::Status => self.status(),
            ServerCommand::Clients => ServerReply::Lines(self.client_pids()),
            ServerCommand::DeviceClients => ServerReply::Lines(self.device_clients()),
            ServerCommand::Ps => ServerReply::Lines(self.ps()),
            ServerCommand::Percent => ServerReply::Percent(self.percent.value()),
            ServerCommand::SetPercent(percent) => self.set_percent(percent),
            ServerCommand::Limit(device) => self.limit(&device),
            ServerCommand::SetLimit(device, bytes) => self.set_limit(&device, bytes),
            ServerCommand::Terminate(pid) => self.terminate(pid),
        };
        // A daemon that is gone makes an orphan, no more.
        drop(self.daemon.send(&reply));
    }

    fn status(&mut self) -> ServerReply {
        self.look_for_fault();
        let status = if self.watch.in_fault() { "FAULT" } else { "ACTIVE" };
        ServerReply::Lines(vec![status.to_owned()])
    }

    fn client_pids(&self) -> Vec<String> {
        let pids: BTreeSet<i32> = self.clients.iter().map(|client| client.pid).collect();
        pids.iter().map(ToString::to_string).collect()
    }

    /// Each card and, under it, its clients.
    fn device_clients(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for card in &self.cards {
            let clients = self.clients.iter().filter(|client| client.cards.contains(&card.uuid));
            let pids: BTreeSet<i32> = clients.map(|client| client.pid).collect();
            lines.push(card.uuid.clone());
            lines.extend(pids.iter().map(ToString::to_string));
        }
        lines
    }

    fn ps(&self) -> Vec<String> {
        let header = row(["PID", "ID", "SERVER", "DEVICE", "NAMESPACE", "COMMAND"]);
        let rows = self.clients.iter().flat_map(|client| {
            client.cards.iter().map(|uuid| self.ps_row(client, uuid)).collect::<Vec<_>>()
        });
        std::iter::once(header).chain(rows).collect()
    }

    fn ps_row(&self, client: &Client, uuid: &str) -> String {
        row([
            &client.pid.to_string(),
            "0",
            &self.id.pid.to_string(),
            uuid.get(..PARTIAL_UUID).unwrap_or(uuid),
            &pid_namespace(client.pid),
            &client.name,
        ])
    }

    fn set_percent(&mut self, percent: f64) -> ServerReply {
        if let Some(percent) = Percent::parse(&percent.to_string()) {
            self.percent = percent;
        }
        ServerReply::Percent(self.percent.value())
    }

    fn limit(&mut self, device: &str) -> ServerReply {
        let card = named(&mut self.cards, self.profile, device);
        let limit = card.and_then(|card| card.limit);
        ServerReply::Limit(limit.map(PinnedLimit::bytes))
    }

    /// For clients to come; what the others have stays.
    fn set_limit(&mut self, device: &str, bytes: Option<u64>) -> ServerReply {
        if let Some(card) = named(&mut self.cards, self.profile, device) {
            card.limit = bytes.and_then(PinnedLimit::from_bytes);
        }
        ServerReply::Done
    }

    /// Throws a client out: its contexts go at once, its next call fails with 810.
    fn terminate(&mut self, pid: i32) -> ServerReply {
        let (gone, staying): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.clients).into_iter().partition(|client| client.pid == pid);
        self.clients = staying;
        if gone.is_empty() {
            return ServerReply::NotFound;
        }
        let server = self.id.pid;
        let freed = self.store.update(|state| {
            let kind = ProcessKind::MpsClient { server };
            state.processes.retain(|process| process.id.pid != pid || process.kind != kind);
        });
        if freed.is_err() {
            return ServerReply::NotFound;
        }
        for client in &gone {
            client.tell(Event::Terminated);
        }
        ServerReply::Done
    }
}

fn row(cells: [&str; 6]) -> String {
    let [pid, id, server, device, namespace, command] = cells;
    format!("{pid:<9} {id:<5} {server:<6} {device:<22} {namespace:<10} {command}")
}

/// The inode of a process's PID namespace.
fn pid_namespace(pid: i32) -> String {
    let link = fs::read_link(format!("/proc/{pid}/ns/pid")).unwrap_or_default();
    let text = link.to_string_lossy();
    text.trim_start_matches("pid:[").trim_end_matches(']').to_owned()
}
