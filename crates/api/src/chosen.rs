//! `config.yaml`: the config that is in force on a node, its name, and why it was chosen.
//!
//! Written by config-manager alone, as JSON, which is YAML too. The text of the config is kept
//! verbatim, so that positions in messages are positions in what the person wrote.

use serde::{Deserialize, Serialize};

use crate::config::{self, AcceptedConfig, ConfigError};
use crate::drain::DrainWish;

/// The chosen config.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChosenConfig {
    /// Format of this document.
    pub version: u32,
    /// The key of the `ConfigMap`, for example `mps-2x`.
    pub name: String,
    /// For example `node label nvidia.com/device-plugin.config=mps-2x`.
    pub why: String,
    /// The config in NVIDIA's format, see [`crate::config`].
    pub text: String,
    /// The cards that people want empty; an older release wrote none.
    #[serde(default, skip_serializing_if = "DrainWish::is_nothing")]
    pub drain: DrainWish,
}

impl crate::Versioned for ChosenConfig {
    const VERSION: u32 = Self::VERSION;

    fn version(&self) -> u32 {
        self.version
    }
}

impl ChosenConfig {
    /// The format that this program writes.
    pub const VERSION: u32 = 1;

    /// What all of it asks for.
    pub fn accept(&self) -> Result<AcceptedConfig, ConfigError> {
        let mut accepted = config::parse(&self.name, &self.text)?;
        accepted.node.drain = self.drain.0.clone();
        Ok(accepted)
    }
}

#[cfg(test)]
mod tests {
    use mpshare_core::Drain;

    use super::*;

    #[test]
    fn a_document_of_a_release_without_drains_asks_for_none() {
        let text = r#"{"version": 1, "name": "mps-2x", "why": "w", "text": ""}"#;
        let read: ChosenConfig = serde_json::from_str(text).unwrap();
        assert_eq!(read.accept().unwrap().node.drain, Drain::Nothing);
        assert!(!serde_json::to_string(&read).unwrap().contains("drain"), "nor does it show");
    }

    #[test]
    fn what_is_drained_survives_the_way_through_the_file_and_is_part_of_the_config() {
        let drain: DrainWish = r#"{"gpus":["GPU-0a"]}"#.parse().unwrap();
        let empty = String::new;
        let chosen = ChosenConfig { version: 1, name: empty(), why: empty(), text: empty(), drain };
        let text = serde_json::to_string(&chosen).unwrap();
        let read: ChosenConfig = serde_json::from_str(&text).unwrap();
        assert_eq!(read, chosen);
        assert!(read.accept().unwrap().node.drain.contains(&"GPU-0a".parse().unwrap()));
    }
}
