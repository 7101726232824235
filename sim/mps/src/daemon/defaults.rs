//! The settings that the next server gets.

use std::collections::BTreeMap;

use mpshare_sim_state::mps::{Percent, PinnedLimit, ServerSettings};

use crate::cli::Users;
use crate::log::ControlLog;

/// The daemon's default percentage, limits and client priority.
#[derive(Debug, Clone)]
pub(super) struct Defaults {
    pub(super) percent: Percent,
    /// By device as [`device_key`] writes it. The environment's
    /// `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT` isn't in here: servers inherit it (facts/mps.md 2).
    pub(super) limits: BTreeMap<String, PinnedLimit>,
    pub(super) priority: i32,
}

impl Defaults {
    /// The defaults that the daemon's environment asks for.
    pub(super) fn from_env(log: &ControlLog) -> Self {
        let percent = match std::env::var("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") {
            Ok(text) => Percent::parse(&text).unwrap_or_else(|| {
                log.say("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE should be between (0.0, 100.0]");
                Percent::FULL
            }),
            Err(_) => Percent::FULL,
        };
        let priority = match std::env::var("CUDA_MPS_CLIENT_PRIORITY") {
            Ok(text) => priority(&text).unwrap_or_else(|| {
                log.say("CUDA_MPS_CLIENT_PRIORITY should be between [0,1]");
                0
            }),
            Err(_) => 0,
        };
        Self { percent, limits: BTreeMap::new(), priority }
    }

    /// What a server is told when it registers.
    pub(super) fn settings(&self, users: Users) -> ServerSettings {
        let limits = self.limits.iter().map(|(device, limit)| (device.clone(), limit.bytes()));
        ServerSettings {
            percent: self.percent.value(),
            limits: limits.collect(),
            priority: self.priority,
            multi_user: users == Users::Many,
        }
    }
}

/// 0 or 1.
pub(super) fn priority(text: &str) -> Option<i32> {
    match integer(text) {
        number @ (0 | 1) => Some(number),
        _ => None,
    }
}

/// A device as the user wrote it: a UUID, or an ordinal, which is 0 when it is missing.
pub(super) fn device_key(word: Option<&str>) -> String {
    match word {
        Some(uuid) if uuid.starts_with("GPU-") || uuid.starts_with("MIG-") => uuid.to_owned(),
        word => integer(word.unwrap_or_default()).to_string(),
    }
}

/// The integer at the start of a word, 0 when there is none: C's `atoi`.
pub(super) fn integer(word: &str) -> i32 {
    let end = word
        .char_indices()
        .find(|(at, letter)| !(letter.is_ascii_digit() || *at == 0 && matches!(letter, '-' | '+')))
        .map_or(word.len(), |(at, _)| at);
    word.get(..end).and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_as_integers_the_lenient_way() {
        for (word, number) in [("12", 12), ("-1", -1), ("7x", 7), ("x", 0), ("", 0), ("-", 0)] {
            assert_eq!(integer(word), number, "for `{word}`");
        }
        assert_eq!(device_key(None), "0");
        assert_eq!(device_key(Some("GPU-1")), "GPU-1");
    }
}
