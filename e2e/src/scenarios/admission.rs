//! The admission webhook: what it makes of pods, what becomes of bad ones in each mode, and what holds
//! while it is away.

mod away;
mod bad;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::ack::{sample, sharing};
use super::{FIFTEEN_GIB, RELEASE, TWO_CARDS, end_sharing_by_memory, rolled_out, share_by_memory};
use crate::cluster::Cluster;
use crate::pods::{self, Pod};
use crate::wait::eventually;

pub(super) use away::{ways_around, webhook_away};
pub(super) use bad::pods_in_each_mode;

const WEBHOOK: &str = "deployment/mpshare-webhook";
const LIMITED: &str = "examples/tke/pod-with-limits.yaml";
const LIMITED_POD: &str = "mps-with-limits";

/// Multiprocessors of the cards that it may come to.
const OF_T4: u32 = 40;
const OF_V100: u32 = 80;

/// The documents' own pods: limits in plain bytes and per cent, and a Job that names no scheduler.
pub(super) fn examples(cluster: &mut Cluster) -> Result<()> {
    await_webhook(cluster)?;
    limits(cluster)?;
    second_scheduler(cluster)
}

/// The TKE document's second example, as it is and with a limit above its share.
fn limits(cluster: &Cluster) -> Result<()> {
    for (bytes, most, warning) in [
        ("4294967296", 4096, ""),
        // 64 GiB of a card of 15.
        ("68719476736", 7680, "its share is 7680 MiB, which is the limit"),
    ] {
        let said = cluster
            .shell(&format!("sed s/4294967296/{bytes}/ {LIMITED} | kubectl apply -f - 2>&1"))?;
        ensure!(said.contains(warning), "no warning: {said}");
        ensure!(warning.is_empty() != said.contains("Warning"), "{said}");
        pods::await_phase(cluster, LIMITED_POD, "Running")?;
        let path = "jsonpath={.spec.containers[0].env[0].value}";
        let limit = cluster.kubectl(&["get", "pod", LIMITED_POD, "-o", path])?;
        ensure!(limit == format!("0={most}M"), "the limit is `{limit}`");
        let got = pods::most_memory(cluster, LIMITED_POD)?;
        ensure!(got <= most && got + 512 >= most, "it got {got} MiB of {most}");
        let said =
            cluster.kubectl(&["exec", LIMITED_POD, "--", "cuda-sample", "--alloc", "1Mi"])?;
        let quarters = [OF_T4 / 4, OF_V100 / 4].map(|it| format!(": {it} multiprocessors"));
        let quarter = quarters.iter().find(|it| said.contains(*it));
        let quarter = quarter.with_context(|| format!("not 25 per cent: {said}"))?;
        println!("    {bytes} bytes and 25 per cent: {got} MiB{quarter}");
        cluster.kubectl(&["delete", "pod", LIMITED_POD, "--grace-period=1"])?;
    }
    Ok(())
}

/// The ACK document's Job names no scheduler; the webhook does.
fn second_scheduler(cluster: &Cluster) -> Result<()> {
    share_by_memory(cluster, FIFTEEN_GIB, 15)?;
    cluster.shell(&format!("helm upgrade {RELEASE} --set scheduler.mode=second"))?;
    rolled_out(cluster)?;
    await_webhook(cluster)?;
    for yaml in ["cat examples/ack/job.yaml", "grep -v hostIPC: examples/ack/job.yaml"] {
        cluster.shell(&format!("{yaml} | kubectl apply -f -"))?;
        let pod = sample(cluster)?;
        pods::await_log(cluster, &pod, "holding")?;
        let said = "jsonpath={.spec.schedulerName} {.spec.hostIPC}";
        println!("    {pod}: {}", cluster.kubectl(&["get", "pod", &pod, "-o", said])?);
        let by = cluster.kubectl(&["get", "pod", &pod, "-o", "jsonpath={.spec.schedulerName}"])?;
        ensure!(by == "mpshare-scheduler", "`{by}` has scheduled it");
        let got = pods::most_memory(cluster, &pod)?;
        ensure!(got <= 7 * 1024, "it got {got} MiB of 7 GiB");
        cluster.shell("kubectl delete -f examples/ack/job.yaml --wait=true")?;
        pods::delete_all(cluster)?;
    }
    // Who names one keeps it.
    let own = sharing("own", 1).with("/spec/schedulerName", json!("somebody"));
    own.create(cluster)?;
    let by = cluster.kubectl(&["get", "pod", "own", "-o", "jsonpath={.spec.schedulerName}"])?;
    ensure!(by == "somebody", "the pod's own scheduler became `{by}`");
    pods::delete_all(cluster)?;
    end_sharing_by_memory(cluster, FIFTEEN_GIB)?;
    cluster.shell(&format!("helm upgrade {RELEASE}"))?;
    rolled_out(cluster)
}

/// Makes a namespace with a mode.
fn namespace(cluster: &Cluster, name: &str, mode: &str) -> Result<()> {
    let object = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "labels": {"mpshare.io/admission": mode}},
    });
    cluster.apply(&object.to_string()).map(drop)
}

/// A pod that is wrong in a simple way, in a namespace.
fn wrong(namespace: &str) -> Pod {
    Pod::new("wrong", TWO_CARDS, &[])
        .with("/metadata/namespace", json!(namespace))
        .with_container("resources", json!({"limits": {"nvidia.com/gpu": 0}}))
}

/// Waits until the webhook refuses what it has to; until then API servers don't trust it.
fn await_webhook(cluster: &Cluster) -> Result<()> {
    cluster.kubectl(&["rollout", "status", "-n", "kube-system", WEBHOOK, "--timeout=120s"])?;
    namespace(cluster, "strict", "enforce")?;
    let mut said = String::new();
    let seen = eventually("the webhook refuses a bad pod", Duration::from_mins(2), || {
        said = try_out(cluster, &wrong("strict"))?;
        Ok(said.contains("asks for 0 `nvidia.com/gpu`"))
    });
    seen.with_context(|| said)
}

/// What `kubectl` says of a pod that isn't kept.
fn try_out(cluster: &Cluster, pod: &Pod) -> Result<String> {
    cluster.shell(&format!(
        "kubectl create --dry-run=server -f - <<'EOF' 2>&1 || true\n{}\nEOF",
        pod.manifest()
    ))
}
