//! `config.yaml`: the config that is in force on a node, its name, and why it was chosen.
//!
//! Written by config-manager alone, as JSON, which is YAML too. The text of the config is kept
//! verbatim, so that positions in messages are positions in what the person wrote.

use serde::{Deserialize, Serialize};

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
}
