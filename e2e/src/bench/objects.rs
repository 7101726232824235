//! The objects of a cluster that has no machines.

use serde_json::{Value, json};

/// GPUs of a node.
const GPUS: usize = 8;

/// GiB of a GPU.
const UNITS: usize = 15;

/// GiB that a pod asks for.
const ASKED: usize = 3;

/// How large a cluster is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) nodes: usize,
    pub(super) pods: usize,
}

impl Size {
    /// What has to be there before pods: nodes, and what no controller makes here.
    pub(super) fn before(self) -> Vec<(&'static str, Value)> {
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"},
            "automountServiceAccountToken": false,
        });
        let nodes = (0..self.nodes).map(|at| ("/api/v1/nodes", node(at)));
        std::iter::once(("/api/v1/namespaces/default/serviceaccounts", account))
            .chain(nodes)
            .collect()
    }

    /// Pods that wait.
    pub(super) fn pods(self) -> Vec<(&'static str, Value)> {
        (0..self.pods).map(|at| ("/api/v1/namespaces/default/pods", pod(at))).collect()
    }
}

fn node(at: usize) -> Value {
    let gpus = (0..GPUS).map(|index| {
        let number = at * GPUS + index;
        json!({
            "uuid": format!("GPU-{number:08x}-5d6a-4b7e-9c8f-{number:012x}"), "index": index,
            "model": "Tesla T4", "memoryMiB": UNITS * 1024, "unitMiB": 1024, "units": UNITS,
            "state": "Ready", "computeCapability": "7.5", "driver": "535.161.08",
        })
    });
    let gpus = Value::Array(gpus.collect()).to_string();
    let room = json!({
        "cpu": "96", "memory": "768Gi", "pods": "250",
        "aliyun.com/gpu-mem": (GPUS * UNITS).to_string(),
    });
    let name = format!("cn-hangzhou.192.168.{}.{}", at / 250, 1 + at % 250);
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name, "annotations": {"mpshare.io/gpus": gpus},
            "labels": {"kubernetes.io/hostname": name},
        },
        "status": {
            "capacity": room, "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    })
}

fn pod(at: usize) -> Value {
    let limits = json!({"aliyun.com/gpu-mem": ASKED.to_string()});
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("pod-{at}")},
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}],
            // New nodes have a taint, which a controller would take away.
            "tolerations": [{"operator": "Exists"}],
        },
    })
}
