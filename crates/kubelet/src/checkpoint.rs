//! A tolerant reader of the kubelet's device checkpoint, `kubelet_internal_checkpoint` in the
//! device plugin directory: which pod UID holds which device ids, and the reply that the plugin
//! gave for them (frozen for the pod's life, `facts/kubernetes.md` 1.8).
//!
//! It is another program's private file: it may be absent, older than the truth (freed pods
//! aren't written at once) or of another shape. Its checksum covers a dump that only Go can
//! make, so it isn't verified. Every surprise is a value; nothing here writes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mpshare_api::read_file;
use prost::Message;

use crate::device_plugin::ContainerAllocateResponse;

/// File name of the checkpoint in the device plugin directory.
pub const FILE_NAME: &str = "kubelet_internal_checkpoint";

/// A node with thousands of containers stays far below.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// What the kubelet noted about one container and one resource.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// UID of the pod, as in its metadata.
    pub pod_uid: String,
    /// Name of the container, init containers included.
    pub container: String,
    /// Extended resource, such as `nvidia.com/gpu`.
    pub resource: String,
    /// Device ids that the container holds.
    pub device_ids: BTreeSet<String>,
    /// The plugin's reply to `Allocate`; `None` where it can't be decoded. It may be another
    /// plugin's, and who holds what is known without it.
    pub reply: Option<ContainerAllocateResponse>,
}

/// The checkpoint couldn't be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file couldn't be read; `NotFound` on a node whose kubelet never saw a plugin.
    #[error("cannot read kubelet checkpoint `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It isn't the JSON that kubelets write.
    #[error("the kubelet checkpoint has an unknown shape")]
    Shape(#[source] serde_json::Error),
}

/// Reads the checkpoint in the device plugin directory `directory`.
pub fn read(directory: &Path) -> Result<Vec<Entry>, CheckpointError> {
    let path = directory.join(FILE_NAME);
    match read_file(&path, MAX_BYTES) {
        Ok(json) => parse(&json),
        Err(source) => Err(CheckpointError::Read { path, source }),
    }
}

/// Parses the checkpoint's content.
fn parse(json: &[u8]) -> Result<Vec<Entry>, CheckpointError> {
    let file: wire::File = serde_json::from_slice(json).map_err(CheckpointError::Shape)?;
    let entries = file.data.pod_device_entries.unwrap_or_default();
    Ok(entries.into_iter().map(entry).collect())
}

fn entry(wire: wire::Entry) -> Entry {
    let by_numa_node = wire.device_ids.unwrap_or_default();
    Entry {
        pod_uid: wire.pod_uid,
        container: wire.container_name,
        resource: wire.resource_name,
        device_ids: by_numa_node.into_values().flatten().flatten().collect(),
        reply: reply(&wire.alloc_resp.unwrap_or_default()),
    }
}

fn reply(base64: &str) -> Option<ContainerAllocateResponse> {
    let bytes = STANDARD.decode(base64).ok()?;
    ContainerAllocateResponse::decode(bytes.as_slice()).ok()
}

mod wire {
    //! The file's shape. Go writes an absent list, map or byte string as `null`.

    use std::collections::BTreeMap;

    use serde::Deserialize;

    #[derive(Deserialize)]
    pub(super) struct File {
        #[serde(rename = "Data")]
        pub(super) data: Data,
    }

    #[derive(Deserialize)]
    pub(super) struct Data {
        #[serde(rename = "PodDeviceEntries")]
        pub(super) pod_device_entries: Option<Vec<Entry>>,
    }

    #[derive(Deserialize)]
    pub(super) struct Entry {
        #[serde(rename = "PodUID")]
        pub(super) pod_uid: String,
        #[serde(rename = "ContainerName")]
        pub(super) container_name: String,
        #[serde(rename = "ResourceName")]
        pub(super) resource_name: String,
        /// NUMA node, or -1, to device ids.
        #[serde(rename = "DeviceIDs")]
        pub(super) device_ids: Option<BTreeMap<String, Option<Vec<String>>>>,
        #[serde(rename = "AllocResp")]
        pub(super) alloc_resp: Option<String>,
    }
}

#[cfg(test)]
mod tests;
