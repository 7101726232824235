//! The scheduler that the chart installs, beside the cluster's own, and the extender alone.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use serde_json::json;

use super::{FIFTEEN_GIB, ODD_CARDS, ONE_CARD, RELEASE, end_sharing_by_memory, share_by_memory};
use crate::cluster::Cluster;
use crate::pods::{self, Pod};
use crate::wait::eventually;

const DEPLOYMENT: &str = "deployment/mpshare-scheduler";

/// One of the two pods works. It is replaced, deleted, and loses its extender: the next pod is bound
/// each time, with a place on a card. Nobody but its kube-scheduler reaches what can bind.
pub(super) fn second(cluster: &mut Cluster) -> Result<()> {
    share_by_memory(cluster, FIFTEEN_GIB, 15)?;
    // The last word wins.
    cluster.shell(&format!("helm upgrade {RELEASE} --set scheduler.mode=second"))?;
    rolled_out(cluster)?;
    let nodes = of_pods(cluster, "{.spec.nodeName}")?;
    let mut nodes: Vec<&str> = nodes.lines().collect();
    nodes.dedup();
    ensure!(nodes.len() == 2, "both pods of the scheduler are on {nodes:?}");

    bound(cluster, "first")?;
    waits_with_numbers(cluster)?;
    outsiders(cluster)?;

    cluster.kubectl(&["rollout", "restart", DEPLOYMENT, "-n", "kube-system"])?;
    bound(cluster, "during-an-update")?;
    rolled_out(cluster)?;

    let leader = leader(cluster)?;
    cluster.kubectl(&["delete", "pod", &leader, "-n", "kube-system", "--wait=false"])?;
    bound(cluster, "after-a-deletion")?;
    let next = self::leader(cluster)?;
    ensure!(next != leader, "`{leader}` still leads");

    kill_extender(cluster, &next)?;
    bound(cluster, "after-a-kill")?;
    let restarts = extender(cluster, &next, "restartCount")?;
    ensure!(restarts == "1", "the extender was started again {restarts} times");
    let now = self::leader(cluster)?;
    has_its_rights(cluster)?;
    println!("    led by {leader}, deleted; then by {next}, its extender killed; now by {now}");

    pods::delete_all(cluster)?;
    end_sharing_by_memory(cluster, FIFTEEN_GIB)?;
    cluster.shell(&format!("helm upgrade {RELEASE}"))?;
    gone(cluster)
}

/// On a node of the control plane the extender answers on the node's loopback, and nowhere else.
pub(super) fn extender_alone(cluster: &mut Cluster) -> Result<()> {
    let label = "node-role.kubernetes.io/control-plane";
    cluster.kubectl(&["label", "node", ODD_CARDS, &format!("{label}=")])?;
    cluster.shell(&format!("helm upgrade {RELEASE} --set scheduler.mode=extender"))?;
    let set = "ds/mpshare-scheduler-extender";
    eventually("the extender is ready on that node", Duration::from_mins(1), || {
        let ready = "jsonpath={.status.desiredNumberScheduled} {.status.numberReady}";
        Ok(cluster.kubectl(&["get", set, "-n", "kube-system", "-o", ready])? == "1 1")
    })?;
    let node = cluster.node(ODD_CARDS)?.host();
    let inspect = "http://127.0.0.1:39999/gpushare-scheduler/inspect";
    let said = node.run("curl", &["-sS", "-m", "5", inspect])?;
    ensure!(said.contains("\"nodes\":["), "it says {said}");

    outsider(cluster)?;
    let address = "jsonpath={.status.addresses[?(@.type==\"InternalIP\")].address}";
    let address = cluster.kubectl(&["get", "node", ODD_CARDS, "-o", address])?;
    let refused = ask(cluster, &format!("http://{address}:39999/healthz"), None)?;
    ensure!(refused.contains(NOBODY_LISTENS), "another pod got {refused}");

    pods::delete_all(cluster)?;
    cluster.kubectl(&["label", "node", ODD_CARDS, &format!("{label}-")])?;
    cluster.shell(&format!("helm upgrade {RELEASE}"))?;
    gone(cluster)
}

/// A line about each pod of the scheduler.
fn of_pods(cluster: &Cluster, path: &str) -> Result<String> {
    let lines = format!("jsonpath={{range .items[*]}}{path}{{\"\\n\"}}{{end}}");
    let label = "app.kubernetes.io/component=scheduler";
    cluster.kubectl(&["get", "pods", "-n", "kube-system", "-l", label, "-o", &lines])
}

fn rolled_out(cluster: &Cluster) -> Result<()> {
    let status = ["rollout", "status", DEPLOYMENT, "-n", "kube-system", "--timeout=120s"];
    cluster.kubectl(&status).map(drop)
}

/// Nothing of a scheduler runs.
fn gone(cluster: &Cluster) -> Result<()> {
    let label = "app.kubernetes.io/component in (scheduler,scheduler-extender)";
    eventually("the scheduler's pods are gone", Duration::from_mins(1), || {
        Ok(cluster
            .kubectl(&["get", "pods", "-n", "kube-system", "-l", label, "-o", "name"])?
            .is_empty())
    })
}

/// A pod of our scheduler that asks for so many GiB.
fn sharing(name: &str, gib: u32) -> Pod {
    Pod::new(name, FIFTEEN_GIB, &["--alloc", "1Gi", "--hold", "forever"])
        .with("/spec/schedulerName", json!("mpshare-scheduler"))
        .with_container("resources", json!({"limits": {"aliyun.com/gpu-mem": gib}}))
}

/// A pod of 3 GiB is bound by our scheduler, with a place on the card, and runs.
fn bound(cluster: &Cluster, name: &str) -> Result<()> {
    let begun = std::time::Instant::now();
    sharing(name, 3).start(cluster)?;
    println!("    {name}: runs after {:.1} s", begun.elapsed().as_secs_f64());
    let place = "jsonpath={.metadata.annotations.mpshare\\.io/allocation}";
    let place = cluster.kubectl(&["get", "pod", name, "-o", place])?;
    ensure!(place.contains("GPU-"), "pod `{name}` is on card `{place}`");
    let of_pod = format!("involvedObject.name={name},reason=Scheduled");
    let mut by = String::new();
    eventually(&format!("an Event says who bound `{name}`"), Duration::from_secs(20), || {
        let path = "jsonpath={.items[*].reportingComponent}{.items[*].source.component}";
        by = cluster.kubectl(&["get", "events", "--field-selector", &of_pod, "-o", path])?;
        Ok(by.contains("mpshare-scheduler"))
    })
    .with_context(|| format!("bound by `{by}`"))
}

/// The API server refused nothing that a part of the scheduler asked for.
fn has_its_rights(cluster: &Cluster) -> Result<()> {
    let said = cluster.kubectl(&[
        "logs",
        "-n=kube-system",
        "-l=app.kubernetes.io/component=scheduler",
        "--all-containers",
        "--tail=-1",
    ])?;
    ensure!(said.contains("successfully acquired lease"), "nobody led: {said}");
    let refused: Vec<&str> = said.lines().filter(|line| line.contains("forbidden")).collect();
    ensure!(refused.is_empty(), "refused: {}", refused.join("\n"));
    Ok(())
}

/// A pod without room learns how much there is.
fn waits_with_numbers(cluster: &Cluster) -> Result<()> {
    sharing("no-room", 13).create(cluster)?;
    let mut events = String::new();
    let of_pod = ["get", "events", "--field-selector", "involvedObject.name=no-room"];
    eventually("the Event has the numbers", Duration::from_secs(30), || {
        events = cluster.kubectl(&of_pod)?;
        Ok(events.contains("3 of 15 GiB"))
    })
    .with_context(|| events)?;
    cluster.kubectl(&["delete", "pod", "no-room", "--wait=true"]).map(drop)
}

/// A pod of a user, of no card.
fn outsider(cluster: &Cluster) -> Result<()> {
    Pod::new("outsider", ONE_CARD, &[])
        .with_container("resources", json!({}))
        .with_container("command", json!(["sleep", "86400"]))
        .with_container("env", json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]))
        .create(cluster)?;
    pods::await_phase(cluster, "outsider", "Running")
}

/// Each pod of the scheduler tells anybody how it is, and lets nobody bind.
fn outsiders(cluster: &mut Cluster) -> Result<()> {
    outsider(cluster)?;
    let addresses = of_pods(cluster, "{.status.podIP}")?;
    for address in addresses.lines() {
        let status = format!("http://{address}:39998");
        let ready = ask(cluster, &format!("{status}/readyz"), None)?;
        ensure!(ready == "ok 200", "a scheduler's extender says {ready}");
        let metrics = ask(cluster, &format!("{status}/metrics"), None)?;
        ensure!(metrics.contains("mpshare_gpu_allocated_mib"), "no metrics: {metrics}");
        let bind = "gpushare-scheduler/bind";
        let refused = ask(cluster, &format!("{status}/{bind}"), Some("{}"))?;
        ensure!(refused.ends_with(" 404"), "the port for probes says {refused}");
        let refused = ask(cluster, &format!("http://{address}:39999/{bind}"), Some("{}"))?;
        ensure!(refused.contains(NOBODY_LISTENS), "an outsider got {refused}");
    }
    cluster.kubectl(&["delete", "pod", "outsider", "--grace-period=1"]).map(drop)
}

/// What is heard in the outsider's network: the code of an answer with its text, or curl's own, 7
/// where nobody listens.
fn ask(cluster: &mut Cluster, url: &str, body: Option<&str>) -> Result<String> {
    let id = "jsonpath={.status.containerStatuses[0].containerID}";
    let id = cluster.kubectl(&["get", "pod", "outsider", "-o", id])?;
    let id = id.rsplit('/').next().unwrap_or_default();
    let body = body.map(|body| format!("--data '{body}'")).unwrap_or_default();
    let line = format!("curl -s -m 5 -w ' %{{http_code}}' {body} {url} || echo curl $?");
    cluster.node(ONE_CARD)?.in_pods_network(id, &line)
}

const NOBODY_LISTENS: &str = "curl 7";

/// The pod that holds the Lease, once one does that is there to stay.
fn leader(cluster: &Cluster) -> Result<String> {
    let holder = "jsonpath={.spec.holderIdentity}";
    let mut leader = String::new();
    eventually("a pod that stays leads", Duration::from_secs(40), || {
        let held = cluster.kubectl(&[
            "get",
            "lease",
            "mpshare-scheduler",
            "-n",
            "kube-system",
            "-o",
            holder,
        ])?;
        // The host's name, which is the pod's, and something random.
        held.split('_').next().unwrap_or_default().clone_into(&mut leader);
        let pods = of_pods(cluster, "{.metadata.name}/{.metadata.deletionTimestamp}")?;
        Ok(!leader.is_empty() && pods.lines().any(|pod| pod == format!("{leader}/")))
    })?;
    Ok(leader)
}

/// Ends the extender beside a scheduler, as a crash does.
fn kill_extender(cluster: &mut Cluster, pod: &str) -> Result<()> {
    let node = cluster.kubectl(&["get", "pod", pod, "-n", "kube-system", "-o", NODE])?;
    let id = extender(cluster, pod, "containerID")?;
    let id = id.rsplit('/').next().unwrap_or_default();
    cluster.node(&node)?.signal_container(id, Signal::KILL)
}

const NODE: &str = "jsonpath={.spec.nodeName}";

/// What the kubelet says of the extender in a pod.
fn extender(cluster: &Cluster, pod: &str, field: &str) -> Result<String> {
    let container = "@.name==\"mpshare-scheduler-extender\"";
    let path = format!("jsonpath={{.status.containerStatuses[?({container})].{field}}}");
    cluster.kubectl(&["get", "pod", pod, "-n", "kube-system", "-o", &path])
}
