//! The node's CDI specification: the same files as those that the runtime gives by itself. Whoever
//! hands devices out by it, containerd or the runtime ([`request`]), needs no other knowledge.

pub(crate) mod request;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use mpshare_sim_state::SimGpu;
use serde_json::{Value, json};

use crate::config::Config;
use crate::driver::{self, Capability, Mount};

/// The kind of NVIDIA's cards, as its own tools write it.
pub const KIND: &str = "nvidia.com/gpu";

/// Writes the specification of `gpus` into directory `dir` and returns its path.
pub fn write(dir: &Path, config: &Config, gpus: &[SimGpu]) -> io::Result<PathBuf> {
    fs::create_dir_all(dir)?;
    let path = dir.join("nvidia.json");
    // containerd watches the directory and must never read half a file; it looks at `.json` only.
    let next = dir.join("nvidia.json.next");
    fs::write(&next, serde_json::to_vec_pretty(&specification(config, gpus))?)?;
    fs::rename(&next, &path)?;
    Ok(path)
}

/// Each card by UUID and by index, and all of them together.
pub fn specification(config: &Config, gpus: &[SimGpu]) -> Value {
    let root = &config.driver_root;
    let node = |gpu: &SimGpu| driver::gpu_mount(root, gpu);
    let by_uuid = gpus.iter().map(|gpu| device(&gpu.uuid, &[node(gpu)]));
    let by_index = gpus.iter().enumerate();
    let by_index = by_index.map(|(index, gpu)| device(&index.to_string(), &[node(gpu)]));
    let all: Vec<Mount> = gpus.iter().map(node).collect();
    let devices: Vec<Value> =
        by_uuid.chain(by_index).chain(std::iter::once(device("all", &all))).collect();
    let mut common = driver::file_mounts(root, &[Capability::Compute, Capability::Utility]);
    common.extend(driver::control_mounts(root, &config.state_dir));
    json!({
        "cdiVersion": "0.5.0", // the first one in which a name may start with a digit
        "kind": KIND,
        "devices": devices,
        "containerEdits": edits(&common),
    })
}

fn device(name: &str, mounts: &[Mount]) -> Value {
    json!({ "name": name, "containerEdits": edits(mounts) })
}

fn edits(mounts: &[Mount]) -> Value {
    let mount = |mount: &Mount| {
        json!({
            "hostPath": mount.source,
            "containerPath": mount.destination,
            "options": mount.access.options(),
        })
    };
    json!({ "mounts": mounts.iter().map(mount).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_card_has_its_uuid_and_its_index_and_all_means_all() {
        let gpu = |index| SimGpu::of_model("t4", index, &format!("GPU-{index}")).unwrap();
        let config = Config::of_driver_root("/driver");
        let specification = specification(&config, &[gpu(0), gpu(1)]);
        let named = |device: &Value| {
            let mounts = device["containerEdits"]["mounts"].as_array().unwrap().iter();
            let nodes: Vec<_> = mounts.map(|mount| mount["containerPath"].clone()).collect();
            (device["name"].clone(), nodes)
        };
        let devices: Vec<_> =
            specification["devices"].as_array().unwrap().iter().map(named).collect();
        let expected = [
            (json!("GPU-0"), vec![json!("/dev/nvidia0")]),
            (json!("GPU-1"), vec![json!("/dev/nvidia1")]),
            (json!("0"), vec![json!("/dev/nvidia0")]),
            (json!("1"), vec![json!("/dev/nvidia1")]),
            (json!("all"), vec![json!("/dev/nvidia0"), json!("/dev/nvidia1")]),
        ];
        assert_eq!(devices, expected);
    }
}
