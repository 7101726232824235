//! CDI devices that a container's annotations name, and what they add to it.
//!
//! That is how a device plugin reaches a containerd that knows nothing of CDI (it does from 1.7 on):
//! containerd hands `cdi.k8s.io/` annotations on, and NVIDIA's runtime does the rest.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};
use thiserror::Error;

const PREFIX: &str = "cdi.k8s.io/";

/// Why a container can't have its CDI devices.
#[derive(Debug, Error)]
pub(crate) enum Error {
    /// No specification has the device.
    #[error("unresolvable CDI devices {0}")]
    Unknown(String),
    /// A specification can't be read.
    #[error("CDI specification `{path}` can't be read")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A specification isn't what it should be, or asks for what the simulator doesn't do.
    #[error("CDI specification `{path}` isn't understood")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: serde_json::Error,
    },
}

#[derive(Debug, Deserialize)]
struct Specification {
    kind: String,
    devices: Vec<Device>,
    #[serde(default, rename = "containerEdits")]
    edits: Edits,
}

#[derive(Debug, Deserialize)]
struct Device {
    name: String,
    #[serde(rename = "containerEdits")]
    edits: Edits,
}

/// What is added to a container. Hooks and device nodes of the kernel aren't done here, so a
/// specification with such is refused.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Edits {
    pub(crate) env: Vec<String>,
    mounts: Vec<Mount>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Mount {
    host_path: PathBuf,
    container_path: PathBuf,
    #[serde(default)]
    options: Vec<String>,
}

impl Edits {
    fn add(&mut self, more: &Self) {
        self.env.extend(more.env.iter().cloned());
        self.mounts.extend(more.mounts.iter().cloned());
    }

    /// The mounts as an OCI specification has them.
    pub(crate) fn mounts(&self) -> impl Iterator<Item = Value> {
        self.mounts.iter().map(|mount| {
            json!({
                "type": "bind",
                "source": mount.host_path,
                "destination": mount.container_path,
                "options": mount.options,
            })
        })
    }
}

/// Full names (`vendor/class=device`) of the devices that the container asks for.
pub(crate) fn devices(specification: &Value) -> Vec<String> {
    let annotations = specification.get("annotations").and_then(Value::as_object);
    let of_cdi = annotations.into_iter().flatten().filter(|(key, _)| key.starts_with(PREFIX));
    let values = of_cdi.filter_map(|(_, value)| value.as_str());
    let names = values.flat_map(|value| value.split(',')).map(|name| name.trim().to_owned());
    names.filter(|name| !name.is_empty()).collect()
}

/// What the devices `names` add to a container, by the specifications in `dirs`.
pub(crate) fn edits(dirs: &[PathBuf], names: &[String]) -> Result<Edits, Error> {
    if names.is_empty() {
        return Ok(Edits::default());
    }
    let mut specifications = Vec::new();
    for dir in dirs {
        specifications.extend(read(dir)?);
    }
    let mut left: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut edits = Edits::default();
    for specification in &specifications {
        let full = |device: &Device| format!("{}={}", specification.kind, device.name);
        let wanted = |device: &&Device| left.contains(&full(device).as_str());
        let chosen: Vec<&Device> = specification.devices.iter().filter(wanted).collect();
        if chosen.is_empty() {
            continue;
        }
        edits.add(&specification.edits);
        for device in chosen {
            edits.add(&device.edits);
            left.retain(|name| *name != full(device));
        }
    }
    if left.is_empty() { Ok(edits) } else { Err(Error::Unknown(left.join(", "))) }
}

fn read(dir: &Path) -> Result<Vec<Specification>, Error> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(Error::Unreadable { path: dir.to_path_buf(), source }),
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    paths.into_iter().map(read_one).collect()
}

fn read_one(path: PathBuf) -> Result<Specification, Error> {
    match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).map_err(|source| Error::Damaged { path, source }),
        Err(source) => Err(Error::Unreadable { path, source }),
    }
}

#[cfg(test)]
mod tests {
    use mpshare_sim_state::SimGpu;

    use super::*;
    use crate::{Config, cdi};

    fn check(asked: &[&str], expected: Result<&[&str], &str>) {
        let dir = tempfile::tempdir().unwrap();
        let gpu = |index| SimGpu::of_model("t4", index, &format!("GPU-{index}a")).unwrap();
        let config = Config::of_driver_root(dir.path().join("driver"));
        cdi::write(&dir.path().join("cdi"), &config, &[gpu(0), gpu(1)]).unwrap();
        let names: Vec<String> = asked.iter().map(|name| (*name).to_owned()).collect();
        let dirs = [dir.path().join("none"), dir.path().join("cdi")];
        let nodes = edits(&dirs, &names).map_err(|error| error.to_string()).map(|edits| {
            let destination = |mount: Value| mount["destination"].as_str().unwrap().to_owned();
            let mut nodes: Vec<_> = edits.mounts().map(destination).collect();
            nodes.retain(|path| path.starts_with("/dev/"));
            nodes
        });
        let expected = expected.map(|paths| paths.iter().map(|path| (*path).to_owned()).collect());
        assert_eq!(nodes, expected.map_err(str::to_owned));
    }

    #[test]
    fn a_device_brings_the_common_nodes_once_and_its_own() {
        let control = ["/dev/nvidiactl", "/dev/nvidia-uvm"];
        check(&["nvidia.com/gpu=GPU-1a"], Ok(&[&control[..], &["/dev/nvidia1"]].concat()));
        let both = [&control[..], &["/dev/nvidia0", "/dev/nvidia1"]].concat();
        check(&["nvidia.com/gpu=all"], Ok(&both));
        let both = [&control[..], &["/dev/nvidia1", "/dev/nvidia0"]].concat();
        check(&["nvidia.com/gpu=0", "nvidia.com/gpu=GPU-1a"], Ok(&both));
    }

    #[test]
    fn devices_that_there_are_not_are_named() {
        let error = "unresolvable CDI devices nvidia.com/gpu=GPU-9, other.com/gpu=0";
        check(&["nvidia.com/gpu=GPU-9", "nvidia.com/gpu=1", "other.com/gpu=0"], Err(error));
    }

    #[test]
    fn names_come_from_annotations_with_the_prefix() {
        let specification = json!({ "annotations": {
            "cdi.k8s.io/plugin_a": "nvidia.com/gpu=0,nvidia.com/gpu=1",
            "io.kubernetes.cri.container-name": "main",
        }});
        assert_eq!(devices(&specification), ["nvidia.com/gpu=0", "nvidia.com/gpu=1"]);
        assert_eq!(devices(&json!({})), Vec::<String>::new());
    }
}
