//! What the role is told at its start.

use std::fmt;
use std::path::PathBuf;

use mpshare_api::MpsRoot;
use mpshare_api::names::CONFIG_MAP;

use crate::choice::Fallback;

/// The role's options.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name of this node's Node object.
    pub node: String,
    /// Where `config.yaml` is written and `status.json` read.
    pub root: MpsRoot,
    /// Where the configs come from.
    pub source: ConfigSource,
    /// The config of a node that has no label.
    pub default_config: Option<String>,
    /// What is tried, in this order, when neither label nor default names a config.
    pub fallbacks: Vec<Fallback>,
}

/// Where the configs come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigSource {
    /// A `ConfigMap`, read through the API: its edits are seen at once.
    ConfigMap {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A directory with one file per config, such as a mounted `ConfigMap`. The kubelet updates
    /// such a mount up to a minute or two after an edit.
    Directory(PathBuf),
}

impl Default for ConfigSource {
    fn default() -> Self {
        Self::ConfigMap { namespace: "kube-system".to_owned(), name: CONFIG_MAP.to_owned() }
    }
}

impl fmt::Display for ConfigSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ConfigMap { namespace, name } => write!(f, "ConfigMap `{namespace}/{name}`"),
            Self::Directory(path) => write!(f, "directory `{}`", path.display()),
        }
    }
}
