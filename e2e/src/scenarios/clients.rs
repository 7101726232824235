//! Running CUDA clients while everything around them changes.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::{NEXT_IMAGE, ONE_CARD, RELEASE, SHARING, TWO_CARDS, await_units, choose, rolled_out};
use crate::clients::{Clients, clients, ensure_same};
use crate::cluster::Cluster;
use crate::pods::{self, Pod};
use crate::wait::eventually;

/// The label goes to 2x, 4x, 1x and back with pods running: allocatable follows, our pods stay the
/// same, no client is lost, no card is over-committed.
pub(super) fn label_with_live_shares(cluster: &mut Cluster) -> Result<()> {
    let ours = our_pods(cluster)?;
    let hold = ["--alloc", "4Gi", "--hold", "forever"];
    for name in ["half-0", "half-1"] {
        Pod::new(name, TWO_CARDS, &hold).start(cluster)?;
    }
    let halves = clients(cluster)?;
    ensure!(halves.len() == 2, "two clients were started: {halves:?}");
    // Half of a T4 is held on each card (packed: both on one). Of quarters there is room for four.
    choose(cluster, TWO_CARDS, "mps-4x")?;
    await_units(cluster, TWO_CARDS, 6)?;
    ensure_same(cluster, &halves, "mps-2x -> mps-4x")?;
    for name in ["quarter-0", "quarter-1", "quarter-2", "quarter-3"] {
        Pod::new(name, TWO_CARDS, &["--alloc", "2Gi", "--hold", "forever"]).start(cluster)?;
    }
    let all = clients(cluster)?;
    ensure!(all.len() == 6, "six clients were started: {all:?}");
    // Whole cards: none is free while shares live.
    choose(cluster, TWO_CARDS, "mps-1x")?;
    pods::await_allocatable_at_most(cluster, TWO_CARDS, 6)?;
    ensure_same(cluster, &all, "mps-4x -> mps-1x")?;
    pods::delete_all(cluster)?;
    await_units(cluster, TWO_CARDS, 2)?;
    choose(cluster, TWO_CARDS, "mps-2x")?;
    await_units(cluster, TWO_CARDS, 4)?;
    let now = our_pods(cluster)?;
    ensure!(now == ours, "pods of ours were replaced:\n{ours}\n{now}");
    Ok(())
}

/// UIDs and restarts of our pods.
fn our_pods(cluster: &Cluster) -> Result<String> {
    let columns = "custom-columns=NAME:.metadata.name,UID:.metadata.uid,RESTARTS:.status.containerStatuses[*].restartCount";
    cluster.kubectl(&["get", "pods", "-n", "kube-system", "-o", columns])
}

/// A broken key of the `ConfigMap`: the last good config stays, condition and Event say where the
/// mistake is.
pub(super) fn broken_config(cluster: &mut Cluster) -> Result<()> {
    let config_map = "nvidia-device-plugin-configs";
    let get = ["get", "cm", "-n", "kube-system", config_map, "-o"];
    let before = cluster.kubectl(&[&get[..], &["jsonpath={.data.mps-2x}"]].concat())?;
    let set = |text: &str| {
        let patch = serde_json::json!({"data": {"mps-2x": text}}).to_string();
        cluster.kubectl(&["patch", "cm", "-n", "kube-system", config_map, "-p", &patch])
    };
    set(&before.replace("replicas", "replcas"))?;
    let message = "jsonpath={.status.conditions[?(@.type==\"MPSShareReady\")].message}";
    eventually("the condition names the mistake", Duration::from_secs(30), || {
        let said = cluster.kubectl(&["get", "node", ONE_CARD, "-o", message])?;
        Ok(said.contains("replcas") && said.contains("line") && said.contains("column"))
    })?;
    eventually("an Event names the mistake", Duration::from_secs(30), || {
        let events = cluster.kubectl(&["get", "events", "-A"])?;
        Ok(events.contains("ConfigInvalid") && events.contains("replcas"))
    })?;
    await_units(cluster, ONE_CARD, 2)?;
    Pod::new("on-last-good", ONE_CARD, &["--hold", "forever"]).start(cluster)?;
    set(&before)?;
    eventually("the condition is good again", Duration::from_secs(30), || {
        let status = message.replace(".message", ".status");
        Ok(cluster.kubectl(&["get", "node", ONE_CARD, "-o", &status])? == "True")
    })?;
    pods::delete_all(cluster)
}

/// Twenty live clients on three cards; everything of ours, the kubelet and containerd end and come
/// back, an upgrade replaces our pods; the same twenty processes hold the same memory.
pub(super) fn survive(cluster: &mut Cluster) -> Result<()> {
    let twenty = start_twenty(cluster)?;
    println!("    {} clients hold {} MiB", twenty.len(), twenty.values().sum::<u64>());

    let next = RELEASE.replace("image.tag=dev", "image.tag=next");
    cluster.shell(&format!("helm upgrade {next}"))?;
    rolled_out(cluster)?;
    let images = cluster.kubectl(&[
        "get",
        "pods",
        "-n",
        "kube-system",
        "-o",
        "jsonpath={.items[*].spec.containers[*].image}",
    ])?;
    let (_, tag) = NEXT_IMAGE.rsplit_once(':').context("no tag")?;
    ensure!(images.split(' ').all(|image| image.ends_with(tag)), "not upgraded: {images}");
    still_there(cluster, &twenty, "helm upgrade")?;

    for name in cluster.kubectl(&["get", "pods", "-n", "kube-system", "-o", "name"])?.lines() {
        cluster.kubectl(&["delete", "-n", "kube-system", name])?;
    }
    rolled_out(cluster)?;
    still_there(cluster, &twenty, "deletion of each pod of ours")?;

    let killed = kill_our_processes(cluster)?;
    let containers = 3 * SHARING.len();
    ensure!(killed >= containers, "{killed} processes of ours in {containers} containers");
    rolled_out(cluster)?;
    still_there(cluster, &twenty, "kill -9 of each process of ours")?;

    for node in [ONE_CARD, TWO_CARDS] {
        cluster.restart_kubelet(node)?;
    }
    still_there(cluster, &twenty, "a kubelet restart")?;
    for node in [ONE_CARD, TWO_CARDS] {
        let node = cluster.node(node)?;
        node.end_containerd()?;
        node.start_containerd()?;
    }
    still_there(cluster, &twenty, "a containerd restart")?;
    cluster.control_plane.end_api_server()?;
    // Long enough for every watch to end and be tried again.
    std::thread::sleep(Duration::from_secs(3));
    cluster.control_plane.start_api_server()?;
    for node in [ONE_CARD, TWO_CARDS] {
        cluster.await_heartbeat(node)?;
    }
    still_there(cluster, &twenty, "an API server outage")?;

    pods::delete_all(cluster)?;
    cluster.shell(&format!("helm upgrade {RELEASE}"))?;
    rolled_out(cluster)?;
    choose(cluster, TWO_CARDS, "mps-2x")?;
    choose(cluster, ONE_CARD, "mps-2x")?;
    await_units(cluster, ONE_CARD, 2)?;
    await_units(cluster, TWO_CARDS, 4)
}

/// Eight pods with two processes each on two cards, four with one on the third.
fn start_twenty(cluster: &Cluster) -> Result<Clients> {
    choose(cluster, ONE_CARD, "mps-4x")?;
    choose(cluster, TWO_CARDS, "mps-4x")?;
    await_units(cluster, ONE_CARD, 4)?;
    await_units(cluster, TWO_CARDS, 8)?;
    let two = ["--alloc", "1Gi", "--processes", "2", "--hold", "forever"];
    let one = ["--alloc", "6Gi", "--hold", "forever"];
    let started: Vec<Pod> = (0..8)
        .map(|n| Pod::new(&format!("two-{n}"), TWO_CARDS, &two))
        .chain((0..4).map(|n| Pod::new(&format!("one-{n}"), ONE_CARD, &one)))
        .collect();
    for pod in &started {
        pod.create(cluster)?;
    }
    for pod in &started {
        pods::await_log(cluster, pod.name(), "holding")?;
    }
    eventually("twenty clients hold memory", Duration::from_secs(30), || {
        Ok(clients(cluster)?.values().filter(|held| **held >= 1024).count() == 20)
    })?;
    clients(cluster)
}

/// The clients are the same, the node is of use, and goes on being so.
fn still_there(cluster: &Cluster, before: &Clients, what: &str) -> Result<()> {
    await_units(cluster, ONE_CARD, 4)?;
    await_units(cluster, TWO_CARDS, 8)?;
    ensure_same(cluster, before, what)?;
    let now = clients(cluster)?;
    ensure!(now.len() == before.len(), "after {what} there are {} clients", now.len());
    println!("    after {what}: the same {} clients", now.len());
    Ok(())
}

/// Kills the process of each container of ours, and returns how many there were.
fn kill_our_processes(cluster: &Cluster) -> Result<usize> {
    let mut killed = 0;
    for node in &cluster.nodes {
        for pid in node.pids_of("/mpshare ")? {
            node.kill(pid)?;
            killed += 1;
        }
    }
    Ok(killed)
}
