//! A container's specification, as containerd writes it for a pod.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use crate::machine::words;

/// What a container may do unless it is privileged, as far as it matters here.
const RIGHTS: [&str; 3] = ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_KILL"];

pub(crate) struct Container {
    env: Vec<String>,
    mounts: Vec<Value>,
    annotations: BTreeMap<String, String>,
    uid: u32,
    privileged: bool,
    read_only_root: bool,
}

impl Container {
    pub(crate) fn new() -> Self {
        let env = vec!["PATH=/usr/bin:/bin".to_owned()];
        Self {
            env,
            mounts: Vec::new(),
            annotations: BTreeMap::new(),
            uid: 0,
            privileged: false,
            read_only_root: false,
        }
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push(format!("{name}={value}"));
        self
    }

    pub(crate) fn bind(mut self, source: &Path, destination: &str) -> Self {
        self.mounts.push(json!({
            "type": "bind", "source": source, "destination": destination, "options": ["bind"],
        }));
        self
    }

    pub(crate) fn annotation(mut self, name: &str, value: &str) -> Self {
        self.annotations.insert(name.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn user(mut self, uid: u32) -> Self {
        self.uid = uid;
        self
    }

    pub(crate) fn privileged(mut self) -> Self {
        self.privileged = true;
        self
    }

    pub(crate) fn read_only_root(mut self) -> Self {
        self.read_only_root = true;
        self
    }

    pub(crate) fn specification(&self, id: &str, program: &[&str]) -> Value {
        let mut rights = RIGHTS.to_vec();
        let mut devices = vec![json!({ "allow": false, "access": "rwm" })];
        if self.privileged {
            rights.push("CAP_SYS_ADMIN");
            devices = vec![json!({ "allow": true, "access": "rwm" })];
        }
        let rights = words(&rights);
        let mut mounts = vec![
            json!({ "type": "proc", "source": "proc", "destination": "/proc" }),
            json!({
                "type": "tmpfs", "source": "tmpfs", "destination": "/dev",
                "options": ["nosuid", "strictatime", "mode=755", "size=65536k"],
            }),
            json!({
                "type": "tmpfs", "source": "shm", "destination": "/dev/shm",
                "options": ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"],
            }),
        ];
        mounts.extend(self.mounts.clone());
        let namespaces = ["pid", "mount", "ipc", "uts"].map(|kind| json!({ "type": kind }));
        json!({
            "ociVersion": "1.0.2-dev",
            "process": {
                "user": { "uid": self.uid, "gid": self.uid },
                "args": program,
                "env": self.env,
                "cwd": "/",
                "capabilities": { "bounding": rights, "effective": rights, "permitted": rights },
            },
            "root": { "path": "rootfs", "readonly": self.read_only_root },
            "mounts": mounts,
            "annotations": self.annotations,
            "linux": {
                "cgroupsPath": format!("/{id}"),
                "namespaces": namespaces,
                "resources": { "devices": devices },
            },
        })
    }
}
