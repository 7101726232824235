//! Nodes and cards that can't be shared by MPS: refused with the reason, and the rest works.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{ODD_CARDS, ONE_CARD, TWO_CARDS, await_units, choose, our_pod};
use crate::cluster::{Cluster, output_of};
use crate::pods::{self, Pod};
use crate::wait::eventually;

/// A card with MIG on and one from before Volta, beside a good one: the condition, Events and the
/// log name both, the good one is offered.
pub(super) fn cards(cluster: &mut Cluster) -> Result<()> {
    choose(cluster, ODD_CARDS, "mps-4x")?;
    await_units(cluster, ODD_CARDS, 4)?;
    await_told(cluster, ODD_CARDS, "MigEnabled", "has MIG enabled")?;
    await_told(cluster, ODD_CARDS, "NoMemoryIsolation", "is older than Volta")?;
    Pod::new("on-the-good-card", ODD_CARDS, &["--alloc", "1Gi", "--hold", "forever"])
        .start(cluster)?;
    pods::delete_all(cluster)
}

/// With the token of one node's pod nothing of another node can be changed, and of its own only the
/// condition.
pub(super) fn own_node_only(cluster: &mut Cluster) -> Result<()> {
    let pod = our_pod(cluster, "nvidia-device-plugin-daemonset", ONE_CARD)?;
    let account = "jsonpath={.spec.serviceAccountName}";
    let account = cluster.kubectl(&["get", "pod", "-n", "kube-system", &pod, "-o", account])?;
    let bound = ["--bound-object-kind=Pod", "--bound-object-name", pod.as_str()];
    let create = ["create", "token", "-n", "kube-system", account.as_str()];
    let token = cluster.kubectl(&[&create[..], &bound[..]].concat())?;
    // kubectl would ask for the status first, which the account may not read.
    let send = |path: &str, body: serde_json::Value| {
        let bearer = format!("Authorization: Bearer {}", token.trim());
        let kind = "Content-Type: application/strategic-merge-patch+json";
        let url = format!("{}/api/v1/{path}/status", cluster.server());
        let mut command = cluster.command("curl");
        command.args(["--silent", "--show-error", "--request", "PATCH", &url]);
        command.arg("--cacert").arg(cluster.authority());
        command.args(["--header", &bearer, "--header", kind, "--data"]);
        output_of(command.arg(body.to_string()))
    };
    let patch = |node: &str, status: serde_json::Value| {
        send(&format!("nodes/{node}"), json!({"status": status}))
    };
    let patch_pods = |pod: &str, body| send(&format!("namespaces/default/pods/{pod}"), body);
    let condition = |kind: &str| {
        let condition = json!({"type": kind, "status": "True", "reason": "Test", "message": "-"});
        json!({"conditions": [condition]})
    };
    let allowed = patch(ONE_CARD, condition("MPSShareReady"))?;
    ensure!(allowed.contains(r#""kind": "Node""#), "its own condition is refused: {allowed}");
    for (node, status) in [
        (TWO_CARDS, condition("MPSShareReady")),
        (ONE_CARD, condition("Ready")),
        (ONE_CARD, json!({"capacity": {"nvidia.com/gpu": "99"}})),
    ] {
        let said = patch(node, status.clone())?;
        ensure!(said.contains("mpshare-own-node"), "{status} of `{node}` isn't refused: {said}");
    }
    own_pods_only(cluster, &patch_pods)
}

/// Of pods it changes the annotations of their GPUs, on its own node.
fn own_pods_only(
    cluster: &Cluster,
    patch: &dyn Fn(&str, serde_json::Value) -> Result<String>,
) -> Result<()> {
    let hold = ["--hold", "forever"];
    let (mine, other) = (Pod::new("mine", ONE_CARD, &hold), Pod::new("other", TWO_CARDS, &hold));
    for pod in [&mine, &other] {
        pod.create(cluster)?;
        pods::await_phase(cluster, pod.name(), "Running")?;
    }
    let annotation = |key: &str| json!({"metadata": {"annotations": {key: "test"}}});
    let allowed = patch(mine.name(), annotation("ALIYUN_COM_GPU_MEM_IDX"))?;
    ensure!(allowed.contains(r#""kind": "Pod""#), "its own pod is refused: {allowed}");
    for (pod, change) in [
        (&other, annotation("ALIYUN_COM_GPU_MEM_IDX")),
        (&mine, annotation("somebody.else/annotation")),
        (&mine, json!({"metadata": {"labels": {"a": "b"}}})),
        (&mine, json!({"status": {"phase": "Failed"}})),
    ] {
        let said = patch(pod.name(), change.clone())?;
        ensure!(
            said.contains("mpshare-own-pods"),
            "{change} of `{}` isn't refused: {said}",
            pod.name()
        );
    }
    pods::delete_all(cluster)
}

/// A node that Tencent's qGPU has taken: it can't be shared by MPS as well.
pub(super) fn qgpu(cluster: &mut Cluster) -> Result<()> {
    let patch = |value: serde_json::Value| {
        let patch = json!({"status": {"capacity": {"tke.cloud.tencent.com/qgpu-core": value}}});
        cluster.kubectl(&[
            "patch",
            "node",
            ONE_CARD,
            "--subresource=status",
            "-p",
            &patch.to_string(),
        ])
    };
    patch(json!("100"))?;
    choose(cluster, ONE_CARD, "mps-4x")?;
    await_condition(cluster, ONE_CARD, "QgpuPresent")?;
    await_units(cluster, ONE_CARD, 2)?;
    patch(serde_json::Value::Null)?;
    await_units(cluster, ONE_CARD, 4)?;
    choose(cluster, ONE_CARD, "mps-2x")?;
    await_units(cluster, ONE_CARD, 2)
}

/// A daemon that somebody started by hand. While ours holds the card it is only named. When it has
/// the card before ours, the card is refused until it has gone.
pub(super) fn foreign_daemon(cluster: &mut Cluster) -> Result<()> {
    start_foreign_daemon(cluster)?;
    await_event(cluster, "ForeignDaemonNearby", FOREIGN_PIPE)?;
    await_units(cluster, ONE_CARD, 2)?;
    choose(cluster, ONE_CARD, "mps-1x")?;
    await_units(cluster, ONE_CARD, 1)?;
    foreign_command(cluster, "start_server -uid 0")?;
    choose(cluster, ONE_CARD, "mps-2x")?;
    await_told(cluster, ONE_CARD, "ForeignMps", FOREIGN_PIPE)?;
    foreign_command(cluster, "quit")?;
    await_units(cluster, ONE_CARD, 2)?;
    cluster.node(ONE_CARD)?.end_program(FOREIGN)
}

const FOREIGN: &str = "foreign";
const FOREIGN_PIPE: &str = "/run/foreign-mps";

/// The environment of the foreign daemon and of whoever talks to it.
const FOREIGN_ENV: [&str; 3] = [
    "CUDA_MPS_PIPE_DIRECTORY=/run/foreign-mps",
    "CUDA_MPS_LOG_DIRECTORY=/run/foreign-mps",
    "LD_LIBRARY_PATH=/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
];

fn start_foreign_daemon(cluster: &mut Cluster) -> Result<()> {
    let start = "export PATH=/run/nvidia/driver/usr/bin:$PATH; mkdir -p /run/foreign-mps; \
                 exec nvidia-cuda-mps-control -f";
    let node = cluster.node(ONE_CARD)?;
    let mut command = node.host().command("env");
    command.args(FOREIGN_ENV).args(["sh", "-c", start]);
    node.start_program(FOREIGN, &mut command)
}

fn foreign_command(cluster: &mut Cluster, command: &str) -> Result<()> {
    let line = format!("echo {command} | /run/nvidia/driver/usr/bin/nvidia-cuda-mps-control");
    let host = cluster.node(ONE_CARD)?.host();
    host.run("env", &[&FOREIGN_ENV[..], &["sh", "-c", &line]].concat()).map(drop)
}

/// Condition, Event and log all say the sentence with these words; Events also have its code.
fn await_told(cluster: &Cluster, node: &str, code: &str, words: &str) -> Result<()> {
    await_condition(cluster, node, words)?;
    await_event(cluster, code, words)?;
    let pod = our_pod(cluster, "nvidia-mps-control-daemon", node)?;
    let log = cluster.kubectl(&["logs", "-n", "kube-system", &pod, "--tail=500"])?;
    ensure!(log.contains(words), "the supervisor's log doesn't say `{words}`");
    Ok(())
}

pub(super) fn await_event(cluster: &Cluster, code: &str, words: &str) -> Result<()> {
    eventually(&format!("an Event says {code}"), Duration::from_mins(1), || {
        let events = cluster.kubectl(&["get", "events", "-A"])?;
        Ok(events.lines().any(|event| event.contains(code) && event.contains(words)))
    })
}

pub(super) fn await_condition(cluster: &Cluster, node: &str, reason: &str) -> Result<()> {
    let condition = "jsonpath={.status.conditions[?(@.type==\"MPSShareReady\")]}";
    let mut last = String::new();
    eventually(&format!("the condition of `{node}` says {reason}"), Duration::from_secs(30), || {
        last = cluster.kubectl(&["get", "node", node, "-o", condition])?;
        Ok(last.contains(reason))
    })
    .with_context(|| format!("it says {last}"))
}
