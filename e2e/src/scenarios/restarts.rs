//! Shares across restarts of containers, kubelets and nodes.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use super::{TWO_CARDS, await_units, choose};
use crate::clients::{Clients, clients};
use crate::cluster::Cluster;
use crate::pods::{self, Pod};
use crate::wait::eventually;

/// A container that restarts in its pod, a kubelet restart, a reboot of the node with pods of a
/// Deployment on it: each keeps or gets again one share, and no card has more shares than it is cut
/// into.
pub(super) fn shares(cluster: &mut Cluster) -> Result<()> {
    choose(cluster, TWO_CARDS, "mps-4x")?;
    await_units(cluster, TWO_CARDS, 8)?;
    in_place(cluster)?;
    deployment(cluster)?;
    let before = await_clients(cluster, 8)?;
    cluster.restart_kubelet(TWO_CARDS)?;
    await_units(cluster, TWO_CARDS, 8)?;
    ensure!(clients(cluster)? == before, "a kubelet restart changed clients");
    cluster.reboot(TWO_CARDS)?;
    cluster.await_ready(TWO_CARDS)?;
    await_units(cluster, TWO_CARDS, 8)?;
    let after = await_clients(cluster, 8)?;
    for gpu in cards(&after) {
        let shares = after.keys().filter(|client| client.gpu == gpu).count();
        ensure!(shares == 4, "`{gpu}` is cut in four and has {shares} clients");
    }
    let failed = rejected(cluster)?;
    println!("    after the reboot: 8 clients again, {failed} pods failed by the kubelet");
    ensure!(failed <= 8, "a storm: {failed} pods were rejected for 8 that were there");
    cluster.kubectl(&["delete", "deployment", "eight"])?;
    pods::delete_all(cluster)?;
    choose(cluster, TWO_CARDS, "mps-2x")?;
    await_units(cluster, TWO_CARDS, 4)
}

/// Its share is the same and it can be used again.
fn in_place(cluster: &Cluster) -> Result<()> {
    Pod::new("in-place", TWO_CARDS, &["--alloc", "3Gi", "--hold", "forever"])
        .with("/spec/restartPolicy", json!("Always"))
        .start(cluster)?;
    let node = cluster.nodes.iter().find(|node| node.name() == TWO_CARDS);
    let before = clients(cluster)?;
    for (client, node) in before.keys().zip(node) {
        node.kill(client.pid)?;
    }
    eventually("the container runs again", Duration::from_mins(1), || {
        let now = clients(cluster)?;
        let is_new = |clients: &Clients| clients.keys().all(|client| !before.contains_key(client));
        Ok(now.len() == 1 && is_new(&now) && now.values().all(|held| *held >= 3072))
    })?;
    ensure!(cards(&clients(cluster)?) == cards(&before), "it has another card now");
    pods::delete_all(cluster)
}

fn deployment(cluster: &Cluster) -> Result<()> {
    let pod = json!({
        "nodeSelector": {"kubernetes.io/hostname": TWO_CARDS},
        "terminationGracePeriodSeconds": 1,
        "containers": [{
            "name": "cuda", "image": pods::CUDA_IMAGE,
            "command": ["cuda-sample", "--alloc", "2Gi", "--hold", "forever"],
            "resources": {"limits": {"nvidia.com/gpu": 1}},
        }],
    });
    let manifest = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "eight"},
        "spec": {
            "replicas": 8, "selector": {"matchLabels": {"app": "eight"}},
            "template": {"metadata": {"labels": {"app": "eight"}}, "spec": pod},
        },
    });
    cluster.apply(&manifest.to_string()).map(drop)
}

fn await_clients(cluster: &Cluster, count: usize) -> Result<Clients> {
    eventually(&format!("{count} clients hold memory"), Duration::from_mins(2), || {
        let now = clients(cluster)?;
        Ok(now.len() == count && now.values().all(|held| *held >= 2048))
    })?;
    clients(cluster)
}

fn cards(clients: &Clients) -> Vec<String> {
    let mut cards: Vec<String> = clients.keys().map(|client| client.gpu.clone()).collect();
    cards.sort();
    cards.dedup();
    cards
}

/// Pods that the kubelet didn't admit.
fn rejected(cluster: &Cluster) -> Result<usize> {
    let reasons = cluster.kubectl(&["get", "pods", "-o", "jsonpath={.items[*].status.reason}"])?;
    Ok(reasons.split_whitespace().filter(|reason| *reason == "UnexpectedAdmissionError").count())
}
