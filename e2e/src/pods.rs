//! Pods of users.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::wait::eventually;

/// The image of CUDA programs.
pub const CUDA_IMAGE: &str = "nvidia/cuda:12.0-base";

/// How long a pod may take until it runs.
const PATIENCE: Duration = Duration::from_mins(1);

/// A pod with one container that asks for units.
#[derive(Debug, Clone)]
pub struct Pod {
    name: String,
    manifest: Value,
}

impl Pod {
    /// A pod on a node that runs the CUDA program with these arguments on one unit.
    pub fn new(name: &str, node: &str, arguments: &[&str]) -> Self {
        let command = [&["cuda-sample"], arguments].concat();
        let manifest = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": {"e2e": "user"}},
            "spec": {
                "nodeSelector": {"kubernetes.io/hostname": node},
                "terminationGracePeriodSeconds": 2,
                "restartPolicy": "Never",
                "containers": [{
                    "name": "cuda", "image": CUDA_IMAGE,
                    "command": command,
                    "resources": {"limits": {"nvidia.com/gpu": 1}},
                }],
            },
        });
        Self { name: name.to_owned(), manifest }
    }

    /// The same pod with something else at a place of its manifest (a JSON pointer).
    #[must_use]
    pub fn with(mut self, pointer: &str, value: Value) -> Self {
        let (parent, key) = pointer.rsplit_once('/').unwrap_or(("", pointer));
        if let Some(parent) = self.manifest.pointer_mut(parent)
            && let Some(object) = parent.as_object_mut()
        {
            object.insert(key.to_owned(), value);
        }
        self
    }

    /// The same pod with a field of its container.
    #[must_use]
    pub fn with_container(self, field: &str, value: Value) -> Self {
        self.with(&format!("/spec/containers/0/{field}"), value)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its manifest.
    pub fn manifest(&self) -> &Value {
        &self.manifest
    }

    /// Creates it.
    pub fn create(&self, cluster: &Cluster) -> Result<()> {
        cluster.apply(&self.manifest.to_string()).map(drop)
    }

    /// Creates it and waits until its program has all that it asked for.
    pub fn start(&self, cluster: &Cluster) -> Result<()> {
        self.create(cluster)?;
        await_log(cluster, &self.name, "holding")
    }
}

/// Waits until a pod's log has a text.
pub fn await_log(cluster: &Cluster, pod: &str, text: &str) -> Result<()> {
    let seen = eventually(&format!("pod `{pod}` says `{text}`"), PATIENCE, || {
        Ok(cluster.kubectl(&["logs", pod])?.contains(text))
    });
    seen.with_context(|| explanation(cluster, pod))
}

/// How many MiB a program in a running pod gets until there is no more. It has to be a client of MPS.
pub fn most_memory(cluster: &Cluster, pod: &str) -> Result<u64> {
    let said = cluster.kubectl(&["exec", pod, "--", "cuda-sample", "--until-oom", "64Mi"])?;
    ensure!(said.contains("through MPS"), "it isn't a client of MPS: {said}");
    let got = said.split("no more after ").nth(1).and_then(|rest| rest.split(' ').next());
    Ok(got.with_context(|| format!("it met no end: {said}"))?.parse()?)
}

/// Waits until a pod is in a phase.
pub fn await_phase(cluster: &Cluster, pod: &str, phase: &str) -> Result<()> {
    let seen = eventually(&format!("pod `{pod}` is {phase}"), PATIENCE, || {
        Ok(cluster.kubectl(&["get", "pod", pod, "-o", "jsonpath={.status.phase}"])? == phase)
    });
    seen.with_context(|| explanation(cluster, pod))
}

/// Waits until a node allocates no more units than are held.
pub fn await_allocatable_at_most(cluster: &Cluster, node: &str, units: u32) -> Result<()> {
    let path = "jsonpath={.status.allocatable.nvidia\\.com/gpu}";
    eventually(&format!("`{node}` has at most {units} units"), PATIENCE, || {
        Ok(cluster.kubectl(&["get", "node", node, "-o", path])?.parse::<u32>()? <= units)
    })
}

fn explanation(cluster: &Cluster, pod: &str) -> String {
    let log = cluster.kubectl(&["logs", pod]).unwrap_or_default();
    let description = cluster.kubectl(&["describe", "pod", pod]).unwrap_or_default();
    let tail: Vec<&str> = description.lines().rev().take(12).collect();
    let tail: Vec<&str> = tail.into_iter().rev().collect();
    format!("log of `{pod}`:\n{log}\n{}", tail.join("\n"))
}

/// Ends all pods of users and waits until they are gone.
pub fn delete_all(cluster: &Cluster) -> Result<()> {
    cluster.kubectl(&["delete", "pods", "--all", "--grace-period=2", "--timeout=60s"])?;
    let left = cluster.kubectl(&["get", "pods", "-n", "default", "-o", "name"])?;
    ensure!(left.is_empty(), "pods stay: {left}");
    Ok(())
}
