//! What holds while the webhook is away, slow, or has lost its certificate, and what a node holds
//! against by itself.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{LIMITED, LIMITED_POD, WEBHOOK, await_webhook, namespace, try_out, wrong};
use crate::cluster::Cluster;
use crate::pods::{self, Pod};
use crate::scenarios::tke::card_on;
use crate::scenarios::{RELEASE, TWO_CARDS, await_units, choose};
use crate::wait::eventually;

const SECRET: &str = "mpshare-webhook-certificates";

/// Pods without GPUs notice nothing. Pods with GPUs pass, or are refused, as `failurePolicy` says.
pub(in crate::scenarios) fn webhook_away(cluster: &mut Cluster) -> Result<()> {
    await_webhook(cluster)?;
    slow(cluster)?;
    lost_certificate(cluster)?;
    down(cluster)?;
    cluster.shell(&format!("helm upgrade {RELEASE} --set webhook.failurePolicy=Fail"))?;
    scale(cluster, 0)?;
    let said = try_out(cluster, &with_gpu())?;
    ensure!(said.contains("failed calling webhook"), "a pod with a GPU passes: {said}");
    plain_passes(cluster, Duration::from_secs(4))?;
    cluster.shell(&format!("helm upgrade {RELEASE}"))?;
    scale(cluster, 2)?;
    await_webhook(cluster)
}

fn with_gpu() -> Pod {
    Pod::new("with-gpu", TWO_CARDS, &[])
}

/// A pod without GPUs is created at once.
fn plain_passes(cluster: &Cluster, within: Duration) -> Result<()> {
    let plain = Pod::new("plain", TWO_CARDS, &[]).with_container("resources", json!({}));
    let begun = Instant::now();
    let said = try_out(cluster, &plain)?;
    let took = begun.elapsed();
    ensure!(said.contains("created") && took < within, "after {took:?}: {said}");
    Ok(())
}

/// It takes connections and says nothing: each of the two questions is given up after 5 s.
fn slow(cluster: &mut Cluster) -> Result<()> {
    signal(cluster, Signal::STOP)?;
    let begun = Instant::now();
    let said = try_out(cluster, &with_gpu());
    let took = begun.elapsed();
    let plain = plain_passes(cluster, Duration::from_secs(4));
    signal(cluster, Signal::CONT)?;
    plain?;
    let said = said?;
    ensure!(said.contains("created"), "{said}");
    ensure!((5..20).contains(&took.as_secs()), "it took {took:?}");
    println!(
        "    a webhook that says nothing: a pod with a GPU is created after {:.1} s",
        took.as_secs_f64()
    );
    await_webhook(cluster)
}

/// Somebody destroys the Secret: the webhook makes another one, and API servers believe it again.
fn lost_certificate(cluster: &Cluster) -> Result<()> {
    let data = json!({"data": {"tls.crt": "Z2FyYmFnZQ==", "ca.key": null}}).to_string();
    let patch = ["patch", "secret", "-n", "kube-system", SECRET, "--type=merge", "-p", &data];
    cluster.kubectl(&patch)?;
    let path = "jsonpath={.data.tls\\.crt}";
    let get = ["get", "secret", "-n", "kube-system", SECRET, "-o", path];
    eventually("the Secret has a certificate again", Duration::from_mins(1), || {
        Ok(cluster.kubectl(&get)?.len() > 100)
    })?;
    await_webhook(cluster)
}

/// Nobody answers. The example's plain bytes do nothing then, and its share holds; annotations are
/// still guarded, by the policy.
fn down(cluster: &Cluster) -> Result<()> {
    scale(cluster, 0)?;
    plain_passes(cluster, Duration::from_secs(4))?;
    let passed = try_out(cluster, &wrong("strict"))?;
    ensure!(passed.contains("created"), "{passed}");
    cluster.shell(&format!("kubectl apply -f {LIMITED}"))?;
    pods::await_phase(cluster, LIMITED_POD, "Running")?;
    let got = pods::most_memory(cluster, LIMITED_POD)?;
    ensure!(got > 4096, "{got} MiB: the limit in plain bytes holds without the webhook");
    let node = cluster.kubectl(&["get", "pod", LIMITED_POD, "-o", "jsonpath={.spec.nodeName}"])?;
    let share = card_on(cluster, &node)? / 2;
    ensure!(got <= share, "it got {got} MiB of a share of {share}");
    println!(
        "    without the webhook 4294967296 bytes are no limit, its share is: {got} of {share} MiB"
    );
    let claim = "mpshare.io/allocation={}";
    let said = cluster
        .shell(&format!("kubectl annotate --overwrite pod {LIMITED_POD} {claim} 2>&1 || true"))?;
    ensure!(said.contains("is written by mpshare alone"), "{said}");
    cluster.kubectl(&["delete", "pod", LIMITED_POD, "--grace-period=1"])?;
    scale(cluster, 2)?;
    await_webhook(cluster)
}

fn scale(cluster: &Cluster, replicas: u32) -> Result<()> {
    let wanted = format!("--replicas={replicas}");
    cluster.kubectl(&["scale", "-n", "kube-system", WEBHOOK, &wanted])?;
    let label = "app.kubernetes.io/component=webhook";
    eventually(&format!("the webhook has {replicas} pods"), Duration::from_mins(2), || {
        let pods =
            cluster.kubectl(&["get", "pods", "-n", "kube-system", "-l", label, "-o", "name"])?;
        Ok(u32::try_from(pods.lines().count())? == replicas)
    })
}

/// Sends a signal to each webhook.
fn signal(cluster: &mut Cluster, signal: Signal) -> Result<()> {
    let label = "app.kubernetes.io/component=webhook";
    let text = cluster.kubectl(&["get", "pods", "-n", "kube-system", "-l", label, "-o", "json"])?;
    let pods: Value = serde_json::from_str(&text)?;
    for pod in pods.get("items").and_then(Value::as_array).into_iter().flatten() {
        let at = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let id = at("/status/containerStatuses/0/containerID").rsplit('/').next();
        let id = id.filter(|id| !id.is_empty()).context("a webhook without a container")?;
        cluster.node(at("/spec/nodeName"))?.signal_container(id, signal)?;
    }
    Ok(())
}

/// Pods in a namespace that the webhook isn't asked about: docs/security.md has a row for each.
pub(in crate::scenarios) fn ways_around(cluster: &mut Cluster) -> Result<()> {
    namespace(cluster, "free", "off")?;
    choose(cluster, TWO_CARDS, "mps-2x")?;
    await_units(cluster, TWO_CARDS, 4)?;
    let share = 7680;
    let with_env = |name: &str, variable: &str, value: &str| {
        Pod::new(name, TWO_CARDS, &["--alloc", "1Gi", "--hold", "forever"])
            .with("/metadata/namespace", json!("free"))
            .with_container("env", json!([{"name": variable, "value": value}]))
    };
    // What its spec says of its limit is capped by the daemon.
    for (name, limit) in [("raised", "0=14G"), ("plain", "15032385536"), ("empty", "")] {
        let pod = with_env(name, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", limit);
        let got = memory_of(cluster, &pod)?;
        ensure!(got <= share, "`{name}` got {got} MiB of a share of {share}");
        println!("    `{limit}`: {got} MiB of a share of {share}");
    }
    // An entry for a card that it doesn't see takes all limits away: nothing on the node stops that yet.
    let dropped = with_env("dropped", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=2G,1=4G");
    let got = memory_of(cluster, &dropped)?;
    ensure!(
        got > share,
        "docs/security.md says that this isn't stopped, and it got {got} MiB only"
    );
    println!("    `0=2G,1=4G`: {got} MiB, past its share");
    // It sees both cards, and CUDA its own through the daemon.
    let both = with_env("both", "NVIDIA_VISIBLE_DEVICES", "all");
    let got = memory_of(cluster, &both)?;
    ensure!(got <= share, "it got {got} MiB of a share of {share}");
    // It asks for nothing; its image asks for all cards, which are in the hands of MPS.
    let nothing = Pod::new("nothing", TWO_CARDS, &["--alloc", "1Gi"])
        .with("/metadata/namespace", json!("free"))
        .with_container("resources", json!({}));
    nothing.create(cluster)?;
    let said = await_end(cluster, "nothing")?;
    ensure!(said.contains("CUDA_ERROR"), "a program past MPS has a card: {said}");
    println!("    a pod that asks for nothing: {}", said.lines().last().unwrap_or_default());
    cluster.kubectl(&["delete", "pods", "--all", "-n", "free"]).map(drop)
}

/// How much a pod gets in the namespace without admission; ends it.
fn memory_of(cluster: &Cluster, pod: &Pod) -> Result<u64> {
    pod.create(cluster)?;
    let name = pod.name();
    eventually(&format!("pod `{name}` runs"), Duration::from_mins(1), || {
        Ok(cluster.kubectl(&["logs", "-n", "free", name])?.contains("holding"))
    })?;
    let said = cluster.kubectl(&[
        "exec",
        "-n",
        "free",
        name,
        "--",
        "cuda-sample",
        "--until-oom",
        "64Mi",
    ])?;
    cluster.kubectl(&["delete", "pod", "-n", "free", name, "--grace-period=1"])?;
    let got = said.split("no more after ").nth(1).and_then(|rest| rest.split(' ').next());
    Ok(got.with_context(|| format!("it met no end: {said}"))?.parse()?)
}

/// What a pod in that namespace said when it has ended.
fn await_end(cluster: &Cluster, pod: &str) -> Result<String> {
    let phase = ["get", "pod", "-n", "free", pod, "-o", "jsonpath={.status.phase}"];
    eventually(&format!("pod `{pod}` ends"), Duration::from_mins(1), || {
        Ok(matches!(cluster.kubectl(&phase)?.as_str(), "Failed" | "Succeeded"))
    })?;
    cluster.kubectl(&["logs", "-n", "free", pod])
}
