//! NVIDIA's config format (`version: v1`), read strictly.
//!
//! NVIDIA's plugin ignores what it doesn't know, so that a wrong indentation means "no sharing"
//! without a word (NVIDIA/k8s-device-plugin#816, #1433). Here every key is known or refused, with
//! line, column and a hint; what mpshare doesn't act on is accepted with one warning that names
//! it, or refused where ignoring it would surprise. This module says what a text means; which
//! cards of a node can do it is decided by [`mpshare_core::plan()`].
//!
//! | module | idea |
//! |---|---|
//! | `form` | the format as types; the JSON Schema comes from them |
//! | `scalar` | values that the format takes in several forms |
//! | `yaml` | text -> form, and what YAML has to say against it |
//! | `keys` | what an unknown key was meant to be |
//! | `flags`, `sharing`, `amount`, `devices` | form -> meaning |
//! | `meaning` | a config in sentences |
//! | `manifest` | the configs in a `ConfigMap` manifest |
//! | `mistake` | the report: position, line, caret, hint |

mod amount;
mod devices;
mod flags;
mod form;
mod keys;
mod manifest;
mod meaning;
mod mistake;
mod scalar;
mod schema;
mod sharing;
mod yaml;

pub use flags::{DeviceIdStrategy, DeviceListStrategy, PluginOptions};
pub use manifest::{ConfigText, config_map_texts};
pub use mistake::ConfigError;
pub use schema::json_schema;

use mpshare_core::{Drain, NodeConfig};

/// The largest text that is read: a `ConfigMap` can't be larger.
pub const MAX_BYTES: usize = 1 << 20;

/// A config that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedConfig {
    /// What it asks for.
    pub node: NodeConfig,
    /// How the device plugin should hand devices to containers.
    pub plugin: PluginOptions,
    /// Things to tell its author, one sentence each.
    pub warnings: Vec<String>,
}

impl AcceptedConfig {
    /// What the config means, one sentence each.
    pub fn meaning(&self) -> Vec<String> {
        meaning::sentences(&self.node)
    }
}

/// Reads a config; `name` is what reports call it (a file, or a key of the `ConfigMap`).
///
/// An empty text asks for whole cards.
///
/// ```
/// let text = "sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}";
/// let config = mpshare_api::config::parse("mps-2x", text).unwrap();
/// assert_eq!(config.node.sharing[0].cut, mpshare_core::Cut::Replicas(2));
///
/// let error = mpshare_api::config::parse("mps-2x", "mps: {}").unwrap_err();
/// assert_eq!((error.line, error.column), (1, 1));
/// ```
pub fn parse(name: &str, text: &str) -> Result<AcceptedConfig, ConfigError> {
    interpret(text).map_err(|mistake| mistake.report(name, text))
}

fn interpret(text: &str) -> Result<AcceptedConfig, mistake::Mistake> {
    let document = yaml::read(text)?;
    document.check_version()?;
    let mut warnings = Vec::new();
    let shared = sharing::interpret(document.sharing.as_ref(), text, &mut warnings)?;
    let flags = document.flags.unwrap_or_default();
    let policy = flags::check(&flags)?;
    let plugin = flags::plugin_options(&flags)?;
    let mut ignored = flags::ignored(&flags);
    if document.resources.is_some() {
        ignored.push("resources");
    }
    if let Some(imex) = &document.imex {
        imex.check()?;
        ignored.push("imex");
    }
    if !ignored.is_empty() {
        warnings.push(format!("no effect here: `{}`", ignored.join("`, `")));
    }
    let node = NodeConfig {
        exclusive_resource: shared.exclusive,
        sharing: shared.entries,
        large_requests: shared.large_requests,
        policy,
        drain: Drain::Nothing,
    };
    Ok(AcceptedConfig { node, plugin, warnings })
}

#[cfg(test)]
mod tests;
