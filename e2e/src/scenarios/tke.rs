//! The TKE document: its commands and its YAML verbatim, with what it says is to be seen.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::{ONE_CARD, SHARING, TWO_CARDS, await_units, choose, our_pod};
use crate::cluster::Cluster;
use crate::pods;
use crate::wait::eventually;

const DEVICE_PLUGIN: &str = "nvidia-device-plugin-daemonset";
const MPS_CONTROL_DAEMON: &str = "nvidia-mps-control-daemon";

/// The chart is installed, and the nodes' label picks `mps-2x`.
pub(super) fn install(cluster: &mut Cluster) -> Result<()> {
    cluster.shell(&format!("helm install {}", super::RELEASE))?;
    super::reset(cluster)
}

/// "节点级别精细化配置": three nodes, three configs, by label. This cluster's nodes take turns.
pub(super) fn labels(cluster: &mut Cluster) -> Result<()> {
    for (config, units) in [("mps-1x", 1), ("mps-4x", 4), ("mps-2x", 2)] {
        cluster.shell(&format!(
            "kubectl label node {ONE_CARD} nvidia.com/device-plugin.config={config} --overwrite"
        ))?;
        await_units(cluster, ONE_CARD, units)?;
    }
    Ok(())
}

/// "验证与运维": the checks, their expected output, and each log.
pub(super) fn checks(cluster: &mut Cluster) -> Result<()> {
    // Units of a former config stay in the capacity for seconds after they have left allocatable: a
    // kubelet that is handing one out panics when it vanishes (facts/kubernetes.md 1.3).
    eventually("capacity and allocatable are 2", Duration::from_secs(30), || {
        let described = cluster
            .shell(&format!("kubectl describe node {ONE_CARD} | grep -E \"nvidia.com/gpu\""))?;
        let is_two = |line: &&str| line.split_whitespace().eq(["nvidia.com/gpu:", "2"]);
        Ok(described.lines().filter(is_two).count() == 2)
    })?;
    for set in [DEVICE_PLUGIN, MPS_CONTROL_DAEMON] {
        let listed = cluster.shell(&format!("kubectl get ds {set} -n kube-system"))?;
        let row: Vec<&str> = listed.lines().nth(1).context("no row")?.split_whitespace().collect();
        let nodes = SHARING.len().to_string();
        ensure!(row.get(1..5) == Some(&[nodes.as_str(); 4]), "not ready everywhere: {listed}");
        let pods = cluster.shell(&format!("kubectl get pod -n kube-system -l qcloud-app={set}"))?;
        ensure!(pods.matches("Running").count() == SHARING.len(), "{pods}");
    }
    ack_checks(cluster)?;
    logs(cluster)
}

/// What the ACK document says of its daemon's pods: found by its label, one for each node, not to be
/// evicted.
fn ack_checks(cluster: &Cluster) -> Result<()> {
    let list = "kubectl get po -l app.aliyun.com/name=mps-control-daemon -A";
    let listed = cluster.shell(list)?;
    ensure!(listed.matches("Running").count() == SHARING.len(), "{listed}");
    let classes =
        cluster.shell(&format!("{list} -o jsonpath='{{.items[*].spec.priorityClassName}}'"))?;
    ensure!(classes.split(' ').all(|class| class == "system-node-critical"), "{classes}");
    Ok(())
}

/// Each container's log says what it has done.
fn logs(cluster: &Cluster) -> Result<()> {
    let of_pod = |set: &str, container: &str| {
        let name = our_pod(cluster, set, ONE_CARD)?;
        cluster
            .shell(&format!("kubectl logs -n kube-system {name} \\\n  -c {container} --tail=200"))
    };
    let plugin = of_pod(DEVICE_PLUGIN, "nvidia-device-plugin-ctr")?;
    ensure!(plugin.contains("nvidia.com/gpu"), "the device plugin says nothing useful: {plugin}");
    let daemon = of_pod(MPS_CONTROL_DAEMON, "mps-control-daemon-ctr")?;
    ensure!(daemon.contains("Ready"), "the supervisor says nothing useful: {daemon}");
    let manager = cluster.shell(
        "kubectl logs -n kube-system -l qcloud-app=nvidia-device-plugin-daemonset \\\n  -c config-manager-sidecar --tail=200",
    )?;
    ensure!(manager.contains("mps-2x"), "config-manager doesn't name its choice: {manager}");
    Ok(())
}

/// The three pods of the document.
pub(super) fn examples(cluster: &mut Cluster) -> Result<()> {
    choose(cluster, TWO_CARDS, "mps-4x")?;
    await_units(cluster, TWO_CARDS, 8)?;
    for (file, pod) in [
        ("pod-inference.yaml", "mps-inference-demo"),
        ("pod-with-limits.yaml", "mps-with-limits"),
        ("pod-on-4x-node.yaml", "mps-on-4x-node"),
    ] {
        cluster.shell(&format!("kubectl apply -f examples/tke/{file}"))?;
        pods::await_phase(cluster, pod, "Running")?;
    }
    let chosen = cluster.kubectl(&["get", "pod", "mps-on-4x-node", "-o", NODE_OF_POD])?;
    ensure!(chosen == TWO_CARDS, "the 4x pod is on `{chosen}`");
    injected(cluster)?;
    pods::delete_all(cluster)?;
    choose(cluster, TWO_CARDS, "mps-2x")?;
    await_units(cluster, TWO_CARDS, 4)
}

const NODE_OF_POD: &str = "jsonpath={.spec.nodeName}";

/// A unit of a node's cards, in MiB: half of one on `mps-2x`, a quarter on `mps-4x`.
fn share_on(cluster: &Cluster, node: &str) -> Result<u64> {
    Ok(card_on(cluster, node)? / if node == TWO_CARDS { 4 } else { 2 })
}

/// The memory of a node's first card, in MiB.
pub(super) fn card_on(cluster: &Cluster, node: &str) -> Result<u64> {
    let found = cluster.nodes.iter().find(|candidate| candidate.name() == node);
    let state = found.with_context(|| format!("no node `{node}`"))?.driver_state()?;
    Ok(state.gpus.first().context("no card")?.total_mib)
}

/// Environment and mounts are injected; no `hostIPC` is needed.
fn injected(cluster: &Cluster) -> Result<()> {
    let inside = "env; ls -d \"$CUDA_MPS_PIPE_DIRECTORY\"; cat /proc/self/mountinfo; nvidia-smi -L";
    let seen = cluster.kubectl(&["exec", "mps-inference-demo", "--", "sh", "-c", inside])?;
    for text in [
        "CUDA_MPS_PIPE_DIRECTORY=",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=",
        " /dev/shm ",
    ] {
        ensure!(seen.contains(text), "`{text}` isn't in the container: {seen}");
    }
    ensure!(seen.matches("GPU-").count() >= 1, "the container doesn't see its card: {seen}");
    let directories =
        "ls -d /run/nvidia/mps/nvidia.com/gpu/GPU-*/pipe /run/nvidia/mps/nvidia.com/gpu/GPU-*/log";
    for node in cluster.nodes.iter().filter(|node| SHARING.iter().any(|it| it.0 == node.name())) {
        let listed = node.host().run("sh", &["-c", directories])?;
        ensure!(listed.lines().count() >= 2, "`{}` lacks directories: {listed}", node.name());
    }
    // Its program is a client of the MPS server, and ends where its share does.
    let got = pods::most_memory(cluster, "mps-inference-demo")?;
    let node = cluster.kubectl(&["get", "pod", "mps-inference-demo", "-o", NODE_OF_POD])?;
    let share = share_on(cluster, &node)?;
    ensure!(got <= share && got + 512 >= share, "it got {got} MiB of a share of {share} MiB");
    Ok(())
}

/// However the devices are handed to the container runtime, the container has its card and no other.
pub(super) fn device_lists(cluster: &mut Cluster) -> Result<()> {
    for strategy in ["volume-mounts", "cdi-annotations", "envvar"] {
        cluster.shell(&format!(
            "helm upgrade {} --set deviceListStrategy={strategy}",
            super::RELEASE
        ))?;
        super::rolled_out(cluster)?;
        await_units(cluster, TWO_CARDS, 4)?;
        pods::Pod::new("one-card", TWO_CARDS, &["--alloc", "1Gi", "--hold", "forever"])
            .start(cluster)?;
        let seen = cluster.kubectl(&["exec", "one-card", "--", "nvidia-smi", "-L"])?;
        ensure!(seen.lines().count() == 1, "by {strategy} the container sees {seen}");
        pods::delete_all(cluster)?;
    }
    Ok(())
}
