//! The device manager's checkpoint file, in the kubelet's JSON (`facts/kubernetes.md` 1.8).
//! Only the checksum isn't the real one: it covers a dump that only Go can make.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mpshare_kubelet::checkpoint::{self, FILE_NAME};
use mpshare_kubelet::device_plugin::Message;
use serde_json::{Value, json};

use super::devices::{Devices, Endpoint, Holding, Resource};

/// Writes the checkpoint to a temporary file and renames it.
pub(super) fn write(directory: &Path, devices: &Devices) -> std::io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(to_json(devices).to_string().as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(directory.join(FILE_NAME))?;
    Ok(())
}

fn to_json(devices: &Devices) -> Value {
    let mut entries = Vec::new();
    for (uid, containers) in &devices.pods {
        for (container, resources) in containers {
            for (resource, holding) in resources {
                let known = devices.resources.get(resource);
                entries.push(json!({
                    "PodUID": uid,
                    "ContainerName": container,
                    "ResourceName": resource,
                    "DeviceIDs": by_numa_node(holding, known),
                    "AllocResp": STANDARD.encode(holding.reply.encode_to_vec()),
                }));
            }
        }
    }
    let registered: BTreeMap<_, _> =
        devices.resources.iter().map(|(name, resource)| (name, &resource.healthy)).collect();
    // Go writes an empty list of entries as null.
    let entries = (!entries.is_empty()).then_some(entries);
    let data = json!({ "PodDeviceEntries": entries, "RegisteredDevices": registered });
    let checksum = fnv1a(data.to_string().as_bytes());
    json!({ "Data": data, "Checksum": checksum })
}

fn by_numa_node(holding: &Holding, known: Option<&Resource>) -> BTreeMap<String, Vec<String>> {
    let mut by_node: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for id in &holding.ids {
        let device = known.and_then(|resource| resource.known.get(id));
        let topology = device.and_then(|device| device.topology.as_ref());
        let nodes: Vec<i64> =
            topology.map_or_else(Vec::new, |t| t.nodes.iter().map(|node| node.id).collect());
        // -1 is the kubelet's mark for a device without topology.
        for node in if nodes.is_empty() { vec![-1] } else { nodes } {
            by_node.entry(node.to_string()).or_default().push(id.clone());
        }
    }
    by_node
}

fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// What a kubelet process knows when it starts: the holdings of the checkpoint, and its resources
/// with no devices and a plugin that has just stopped. A checkpoint that can't be used is none.
pub(super) fn read(directory: &Path, now: Instant) -> Devices {
    let mut devices = Devices::default();
    match checkpoint::read(directory) {
        Ok(entries) => {
            for entry in entries {
                let reply = entry.reply.unwrap_or_default();
                let holding = Holding { ids: entry.device_ids, reply };
                devices.hold(&entry.pod_uid, &entry.container, &entry.resource, holding);
            }
        }
        Err(error) => tracing::info!(%error, "the kubelet starts without a checkpoint"),
    }
    for resource in registered(directory) {
        devices.resources.insert(resource.clone(), Resource::default());
        let stopped = Endpoint { stopped: Some(now), ..Endpoint::default() };
        devices.endpoints.insert(resource, stopped);
    }
    devices
}

fn registered(directory: &Path) -> Vec<String> {
    let json = std::fs::read(directory.join(FILE_NAME)).unwrap_or_default();
    let file: Value = serde_json::from_slice(&json).unwrap_or_default();
    let resources = file.pointer("/Data/RegisteredDevices");
    let resources = resources.and_then(Value::as_object);
    resources.map_or_else(Vec::new, |map| map.keys().cloned().collect())
}
