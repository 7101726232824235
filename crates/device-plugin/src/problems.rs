//! What keeps resources from being served, for people: said in the log when it changes, and written
//! for config-manager, which tells it to the Kubernetes API.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use mpshare_api::{MpsRoot, PluginStatus, write_document};
use mpshare_core::{Reason, ResourceName};
use mpshare_telemetry::sentence;

/// The problems of all resources.
#[derive(Debug)]
pub(crate) struct Problems {
    path: PathBuf,
    reasons: Mutex<BTreeMap<ResourceName, Reason>>,
}

impl Problems {
    /// None yet; those of a former process are forgotten.
    pub(crate) fn new(root: &MpsRoot) -> Self {
        let problems = Self { path: root.plugin_status(), reasons: Mutex::default() };
        problems.write(&BTreeMap::new());
        problems
    }

    /// A resource has this problem now, or none.
    pub(crate) fn set(&self, resource: &ResourceName, reason: Option<Reason>) {
        // A panic while it was held can't leave a map half-changed.
        let mut reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        if reasons.get(resource) == reason.as_ref() {
            return;
        }
        if let Some(reason) = reason {
            tracing::warn!(code = reason.code(), "{reason}");
            reasons.insert(resource.clone(), reason);
        } else {
            tracing::info!(%resource, "no other device plugin is in the way any more");
            reasons.remove(resource);
        }
        self.write(&reasons);
    }

    /// Best effort: the log has said it.
    fn write(&self, reasons: &BTreeMap<ResourceName, Reason>) {
        if reasons.is_empty() {
            match std::fs::remove_file(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(%error, "`{}` can't be removed", self.path.display());
                }
                Ok(()) | Err(_) => {}
            }
            return;
        }
        let reasons = reasons.values().map(Into::into).collect();
        let status = PluginStatus { version: PluginStatus::VERSION, reasons };
        if let Err(error) = write_document(&self.path, &status) {
            tracing::warn!(error = sentence(&error), "problems can't be written");
        }
    }
}
