//! `device-plugin.json`: what keeps the device plugin from serving a resource.
//!
//! The plugin has no access to the Kubernetes API; config-manager, which has, tells it there. The
//! file is there only while there is something to tell.

use serde::{Deserialize, Serialize};

use crate::status::ReasonText;

/// The device plugin's report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginStatus {
    /// Format of this document.
    pub version: u32,
    /// One per resource that isn't served as it should be.
    pub reasons: Vec<ReasonText>,
}

impl PluginStatus {
    /// The format that this program writes.
    pub const VERSION: u32 = 1;
}

impl crate::Versioned for PluginStatus {
    const VERSION: u32 = Self::VERSION;

    fn version(&self) -> u32 {
        self.version
    }
}
