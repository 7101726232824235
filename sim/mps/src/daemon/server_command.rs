//! The front-end's commands that concern a server.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use mpshare_sim_state::mps::{Percent, PinnedLimit, ServerCommand, ServerReply};
use mpshare_sim_state::wire::Peer;

use super::command::Words;
use super::defaults::device_key;
use super::link::Link;
use super::state::Stay;
use super::{Daemon, privilege};

/// How long `shutdown_server` waits for a server without clients.
const SHUTDOWN: Duration = Duration::from_secs(2);

/// A server as a command finds it.
enum Found {
    Missing,
    Initializing,
    Up(Arc<Link>),
}

impl Daemon {
    /// The output of a command on a server; `None` when there is no such command.
    pub(super) fn server_reply(&self, peer: Peer, name: &str, words: Words<'_>) -> Option<String> {
        Some(match name {
            "get_server_list" => self.server_list(),
            "get_server_status" => self.server_status(words),
            "get_client_list" => self.ask(words.integer(0), &ServerCommand::Clients),
            "get_device_client_list" => self.device_clients(words),
            "ps" => self.ps(words),
            "get_active_thread_percentage" => self.ask(words.integer(0), &ServerCommand::Percent),
            "set_active_thread_percentage" => self.set_percent(peer, words),
            "get_device_pinned_mem_limit" => {
                self.ask(words.integer(0), &ServerCommand::Limit(device_key(words.get(1))))
            }
            "set_device_pinned_mem_limit" => self.set_limit(peer, words),
            "shutdown_server" => self.shutdown_server(peer, words),
            "terminate_client" => self.terminate_client(peer, words),
            _ => return None,
        })
    }

    fn find(&self, pid: i32) -> Found {
        match self.lock().server(pid) {
            None => Found::Missing,
            Some(server) => server.link().map_or(Found::Initializing, Found::Up),
        }
    }

    fn server_list(&self) -> String {
        self.lock().server.as_ref().map(|server| format!("{}\n", server.pid)).unwrap_or_default()
    }

    fn server_status(&self, words: Words<'_>) -> String {
        if words.get(0).is_none() {
            return "A server PID is required\n".to_owned();
        }
        match self.find(words.integer(0)) {
            Found::Initializing => "INITIALIZING\n".to_owned(),
            Found::Missing | Found::Up(_) => self.ask(words.integer(0), &ServerCommand::Status),
        }
    }

    /// Asks a server; one that initialises gives nothing, and that is in the log only.
    fn ask(&self, pid: i32, command: &ServerCommand) -> String {
        match self.find(pid) {
            Found::Missing => not_found(pid),
            Found::Initializing => {
                self.log.say(format!("Server {pid} is <busy>"));
                String::new()
            }
            Found::Up(link) => link.ask(command).map_or_else(|| not_found(pid), show),
        }
    }

    fn device_clients(&self, words: Words<'_>) -> String {
        let pid = match words.get(0) {
            Some(_) => words.integer(0),
            None => match &self.lock().server {
                Some(server) => server.pid,
                None => return String::new(),
            },
        };
        self.ask(pid, &ServerCommand::DeviceClients)
    }

    fn ps(&self, words: Words<'_>) -> String {
        if let Some(word) = words.after("-p") {
            let pid = super::defaults::integer(word);
            return match self.find(pid) {
                Found::Up(link) => link.ask(&ServerCommand::Ps).map(show).unwrap_or_default(),
                Found::Missing | Found::Initializing => format!("{0}{0}\n", not_found(pid)),
            };
        }
        let link = self.lock().server.as_ref().and_then(super::state::Server::link);
        let rows = link.and_then(|link| link.ask(&ServerCommand::Ps)).map(show);
        rows.unwrap_or_else(|| "Server not found\n".to_owned())
    }

    fn set_percent(&self, peer: Peer, words: Words<'_>) -> String {
        let pid = words.integer(0);
        if let Some(refusal) = self.refusal(peer, pid) {
            return refusal;
        }
        let Some(percent) = words.get(1).and_then(Percent::parse) else {
            self.log_invalid_percent();
            return self.ask(pid, &ServerCommand::Percent);
        };
        self.ask(pid, &ServerCommand::SetPercent(percent.value()))
    }

    fn set_limit(&self, peer: Peer, words: Words<'_>) -> String {
        let pid = words.integer(0);
        if let Some(refusal) = self.refusal(peer, pid) {
            return refusal;
        }
        let limit = words.get(2).and_then(PinnedLimit::parse).map(PinnedLimit::bytes);
        self.ask(pid, &ServerCommand::SetLimit(device_key(words.get(1)), limit))
    }

    /// Somebody who may not change a server that exists.
    fn refusal(&self, peer: Peer, pid: i32) -> Option<String> {
        let exists = self.lock().server(pid).is_some();
        (exists && !privilege::may_control(peer)).then(|| privilege::no_control(peer))
    }

    /// Without `-f` the server goes after its last client; the command waits for that only while
    /// there is none.
    fn shutdown_server(&self, peer: Peer, words: Words<'_>) -> String {
        let pid = words.integer(0);
        let mut state = self.lock();
        let Some(server) = state.server.as_mut().filter(|server| server.pid == pid) else {
            return not_found(pid);
        };
        if !privilege::may_act_for(peer, server.uid) {
            return privilege::not_theirs(peer, "shutdown another user's server");
        }
        server.stay = Stay::UntilLastClient;
        let link = server.link();
        drop(state);
        if words.has("-f") {
            Self::kill_server(pid);
        } else if let Some(link) = link {
            let clients = link.ask(&ServerCommand::Clients).map(show).unwrap_or_default();
            drop(link.leave());
            if !clients.is_empty() {
                return String::new();
            }
        } else {
            return String::new();
        }
        self.wait_for_server(pid);
        String::new()
    }

    fn wait_for_server(&self, pid: i32) {
        let deadline = Instant::now() + SHUTDOWN;
        let mut state = self.lock();
        while state.server(pid).is_some() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// `0` when the client is out.
    fn terminate_client(&self, peer: Peer, words: Words<'_>) -> String {
        let (pid, client) = (words.integer(0), words.integer(1));
        let link = match self.find(pid) {
            Found::Missing => return format!("{}Server {pid} not found!\n1\n", not_found(pid)),
            Found::Initializing => return format!("Server {pid} not found!\n1\n"),
            Found::Up(link) => link,
        };
        if self.lock().server(pid).is_some_and(|server| !privilege::may_act_for(peer, server.uid)) {
            return privilege::not_theirs(peer, "terminate another user's client");
        }
        match link.ask(&ServerCommand::Terminate(client)) {
            Some(ServerReply::Done) => "0\n".to_owned(),
            _ => "1\n".to_owned(),
        }
    }
}

fn not_found(pid: i32) -> String {
    format!("Server {pid} not found\n")
}

fn show(reply: ServerReply) -> String {
    match reply {
        ServerReply::Lines(lines) => lines.into_iter().map(|line| line + "\n").collect(),
        ServerReply::Percent(percent) => format!("{percent:.1}\n"),
        ServerReply::Limit(bytes) => bytes
            .and_then(PinnedLimit::from_bytes)
            .map(|limit| format!("{limit}\n"))
            .unwrap_or_default(),
        ServerReply::Ready | ServerReply::Done | ServerReply::NotFound => String::new(),
    }
}
