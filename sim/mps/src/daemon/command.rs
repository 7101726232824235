//! The front-end's commands that concern the daemon itself, and the table of all of them.
//!
//! The replies are those of facts/mps.md 1.2 and of its transcripts.

use std::sync::Arc;

use mpshare_sim_state::mps::{Percent, PinnedLimit};
use mpshare_sim_state::wire::Peer;

use super::defaults::{device_key, integer, priority};
use super::{Daemon, privilege};

/// What a command leads to.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Output, with line ends.
    Text(String),
    /// The end of the daemon, after so many seconds at most.
    Quit(Option<u32>),
}

/// One command's words after its name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words<'a> {
    words: &'a [&'a str],
}

impl<'a> Words<'a> {
    /// The word at a place.
    pub(super) fn get(self, place: usize) -> Option<&'a str> {
        self.words.get(place).copied()
    }

    /// The word at a place as an integer; 0 when there is none.
    pub(super) fn integer(self, place: usize) -> i32 {
        integer(self.get(place).unwrap_or_default())
    }

    /// The word after an option.
    pub(super) fn after(self, option: &str) -> Option<&'a str> {
        let place = self.words.iter().position(|word| *word == option)?;
        self.get(place + 1)
    }

    /// Whether an option is there.
    pub(super) fn has(self, option: &str) -> bool {
        self.words.contains(&option)
    }
}

impl Daemon {
    /// Carries one line out.
    pub(super) fn execute(self: &Arc<Self>, peer: Peer, line: &str) -> Outcome {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let (name, words) = match words.split_first() {
            Some((name, words)) => (*name, Words { words }),
            None => ("", Words { words: &[] }),
        };
        if name == "quit" {
            let seconds = words.after("-t").map(|word| u32::try_from(integer(word)).unwrap_or(0));
            return Outcome::Quit(seconds);
        }
        let known = self.options.profile.has_command(name);
        let reply = if known { self.reply(peer, name, words) } else { None };
        Outcome::Text(reply.unwrap_or_else(|| format!("Unknown command \"{name}\"\n")))
    }

    /// The output of a command; `None` when there is no such command.
    fn reply(self: &Arc<Self>, peer: Peer, name: &str, words: Words<'_>) -> Option<String> {
        let defaults = matches!(
            name,
            "set_default_active_thread_percentage"
                | "set_default_device_pinned_mem_limit"
                | "set_default_client_priority"
        );
        if defaults && !privilege::may_control(peer) {
            return Some(privilege::no_control(peer));
        }
        Some(match name {
            "get_default_active_thread_percentage" => self.default_percent(),
            "set_default_active_thread_percentage" => self.set_default_percent(words),
            "get_default_device_pinned_mem_limit" => self.default_limit(words),
            "set_default_device_pinned_mem_limit" => self.set_default_limit(words),
            "get_default_client_priority" => format!("{}\n", self.lock().defaults.priority),
            "set_default_client_priority" => self.set_default_priority(words),
            "start_server" => self.start_server_for(peer, words),
            "lspart" => String::new(),
            "sm_partition" => "Static SM partitioning is not enabled\n".to_owned(),
            "device_query" => self.device_query(),
            name => return self.server_reply(peer, name, words),
        })
    }

    fn default_percent(&self) -> String {
        format!("{}\n", self.lock().defaults.percent)
    }

    /// Echoes the value now in force, which is the old one when the new one is invalid.
    fn set_default_percent(&self, words: Words<'_>) -> String {
        match words.get(0).and_then(Percent::parse) {
            Some(percent) => self.lock().defaults.percent = percent,
            None => self.log_invalid_percent(),
        }
        self.default_percent()
    }

    pub(super) fn log_invalid_percent(&self) {
        self.log.say("Invalid percentage, expected between (0.0, 100.0]");
    }

    fn default_limit(&self, words: Words<'_>) -> String {
        let state = self.lock();
        if let Some(limit) = state.defaults.limits.get(&device_key(words.get(0))) {
            return format!("{limit}\n");
        }
        self.log.say("No default pinned memory limit set for the device!");
        String::new()
    }

    /// Says nothing whatever it is given; what it can't read removes the limit.
    fn set_default_limit(&self, words: Words<'_>) -> String {
        if self.store.read().is_ok_and(|state| state.faults.memory_limit_ignored) {
            return String::new();
        }
        let device = device_key(words.get(0));
        let limits = &mut self.lock().defaults.limits;
        match words.get(1).and_then(PinnedLimit::parse) {
            Some(limit) => limits.insert(device, limit),
            None => limits.remove(&device),
        };
        String::new()
    }

    fn set_default_priority(&self, words: Words<'_>) -> String {
        match priority(words.get(0).unwrap_or_default()) {
            Some(priority) => self.lock().defaults.priority = priority,
            None => return "Invalid priority value - must be 0 or 1!\n".to_owned(),
        }
        String::new()
    }

    /// Returns before the server is up; behind another user's server it waits its turn.
    fn start_server_for(self: &Arc<Self>, peer: Peer, words: Words<'_>) -> String {
        let Some(uid) = words.after("-uid").and_then(|word| u32::try_from(integer(word)).ok())
        else {
            return "A user id (UID) is required to start a new server\n".to_owned();
        };
        if !privilege::may_act_for(peer, uid) {
            return privilege::not_theirs(peer, "start server for another user");
        }
        let mut state = self.lock();
        state.wanted.push_back(uid);
        self.schedule(&mut state);
        String::new()
    }

    fn device_query(&self) -> String {
        let Ok(state) = self.store.read() else {
            return String::new();
        };
        let line = |(index, uuid)| format!("Device {index}: {uuid}\n");
        let cards = state.gpus.iter().map(|gpu| gpu.uuid.as_str());
        cards.enumerate().map(line).collect()
    }
}
