//! The ACK document: its commands and its YAML verbatim, with what it says is to be seen.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{FIFTEEN_GIB, end_sharing_by_memory};
use crate::cluster::Cluster;
use crate::pods::{self, Pod};
use crate::wait::eventually;

const JOB: &str = "examples/ack/job.yaml";

/// From the node's label to the last pod's end.
pub(super) fn document(cluster: &mut Cluster) -> Result<()> {
    cluster.kubectl(&["label", "node", FIFTEEN_GIB, "ack.node.gpu.schedule=mps"])?;
    let daemons = "kubectl get po -l app.aliyun.com/name=mps-control-daemon -A -o wide";
    eventually("the node has a daemon's pod", Duration::from_mins(1), || {
        let listed = cluster.shell(daemons)?;
        Ok(listed.lines().any(|line| line.contains(FIFTEEN_GIB) && line.contains("Running")))
    })?;
    await_inspect(cluster, "0/15 (0%)")?;

    cluster.shell(&format!("kubectl apply -f {JOB}"))?;
    let pod = sample(cluster)?;
    pods::await_log(cluster, &pod, "holding")?;
    let seen = cluster.kubectl(&["exec", &pod, "--", "nvidia-smi"])?;
    for part in ["nvidia-cuda-mps-server", "M+C", "python", "E. Process"] {
        ensure!(seen.contains(part), "nvidia-smi doesn't show `{part}`:\n{seen}");
    }
    await_inspect(cluster, "7/15 (46%)")?;
    share_holds(cluster, &pod)?;

    // Nothing of the host's is needed.
    let second = sharing("second", 7);
    second.start(cluster)?;
    await_inspect(cluster, "14/15 (93%)")?;
    await_used(cluster)?;
    share_holds(cluster, "second")?;
    waits_with_numbers(cluster)?;

    cluster.shell(&format!("kubectl delete -f {JOB} --wait=true"))?;
    // What had no room has it now.
    pods::await_log(cluster, "third", "holding")?;
    pods::delete_all(cluster)?;
    await_inspect(cluster, "0/15 (0%)")?;
    end_sharing_by_memory(cluster, FIFTEEN_GIB)
}

/// A pod that asks for so many GiB of a card.
pub(super) fn sharing(name: &str, gib: u32) -> Pod {
    Pod::new(name, FIFTEEN_GIB, &["--alloc", "1Gi", "--hold", "forever"])
        .with_container("resources", json!({"limits": {"aliyun.com/gpu-mem": gib}}))
}

/// The name of the Job's pod.
pub(super) fn sample(cluster: &Cluster) -> Result<String> {
    let mut name = String::new();
    eventually("the Job has a pod", Duration::from_secs(30), || {
        let names = cluster.kubectl(&["get", "pods", "-l", "app=mps-sample", "-o", "name"])?;
        names.trim().trim_start_matches("pod/").clone_into(&mut name);
        Ok(!name.is_empty())
    })?;
    Ok(name)
}

/// What `kubectl inspect cgpu` says of the cluster, and its row of the node.
pub(super) fn await_inspect(cluster: &Cluster, total: &str) -> Result<()> {
    let (held, _) = total.split_once(' ').context("a total has a percentage")?;
    let mut said = String::new();
    eventually(&format!("kubectl inspect cgpu says {total}"), Duration::from_secs(30), || {
        said = cluster.shell("kubectl inspect cgpu")?;
        let row = said.lines().find(|line| line.starts_with(FIFTEEN_GIB)).unwrap_or_default();
        Ok(said.contains(total) && row.split_whitespace().filter(|cell| *cell == held).count() == 2)
    })
    .with_context(|| format!("it says\n{said}"))
}

/// The wide table says how much the two pods really use.
fn await_used(cluster: &Cluster) -> Result<()> {
    let mut said = String::new();
    eventually("the wide table says what is used", Duration::from_mins(1), || {
        said = cluster.shell("kubectl inspect cgpu -o json")?;
        let report: Value = serde_json::from_str(&said)?;
        // One of the two alone holds a GiB and its context.
        let used = report.pointer("/nodes/0/gpus/0/usedMiB").and_then(Value::as_u64);
        Ok(used.is_some_and(|used| used > 1536))
    })
    .with_context(|| said)
}

/// The eighth GiB is refused to the pod itself.
fn share_holds(cluster: &Cluster, pod: &str) -> Result<()> {
    let got = pods::most_memory(cluster, pod)?;
    ensure!(got <= 7 * 1024, "it got {got} MiB of 7 GiB");
    Ok(())
}

/// A third pod has no room, and its Event says so with numbers.
fn waits_with_numbers(cluster: &Cluster) -> Result<()> {
    sharing("third", 2).create(cluster)?;
    let mut events = String::new();
    let of_third = ["get", "events", "--field-selector", "involvedObject.name=third"];
    eventually("the third pod's Event has the numbers", Duration::from_secs(30), || {
        events = cluster.kubectl(&of_third)?;
        Ok(events.contains("1 of 15 GiB") || events.contains("14 of 15 GiB"))
    })
    .with_context(|| events)
}
