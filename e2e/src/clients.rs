//! The CUDA clients of the cluster, as the simulated driver accounts for them.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use mpshare_sim_state::{ProcessKind, SimProcess};

use crate::cluster::{Cluster, Node};

/// The name of the client by which mpshare tries for a moment whether a server takes any.
const CANARY: &str = "mpshare-canary";

/// One process with a CUDA context: PIDs are reused, so its start time is part of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Client {
    /// Its node.
    pub node: String,
    /// Its PID on the node.
    pub pid: i32,
    /// When it was started, in clock ticks since boot.
    pub start: u64,
    /// Its card.
    pub gpu: String,
}

/// What each client holds, in MiB.
pub type Clients = BTreeMap<Client, u64>;

/// All clients of all nodes that are there now. Fails when a card's memory limits add up to more
/// than it has: that must never be.
pub fn clients(cluster: &Cluster) -> Result<Clients> {
    let mut all = Clients::new();
    for node in &cluster.nodes {
        let state = node.driver_state()?;
        for process in state.processes.iter().filter(|process| is_client(process)) {
            let client = Client {
                node: node.name().to_owned(),
                pid: process.id.pid,
                start: process.id.start,
                gpu: process.gpu.clone(),
            };
            all.insert(client, process.used_mib);
        }
        for gpu in &state.gpus {
            let held: u64 =
                state.processes.iter().filter(|p| p.gpu == gpu.uuid).map(|p| p.used_mib).sum();
            ensure!(held <= gpu.total_mib, "`{}` holds {held} MiB of {}", gpu.uuid, gpu.total_mib);
        }
    }
    Ok(all)
}

/// Whether a process is one of a user, with a context on a card.
fn is_client(process: &SimProcess) -> bool {
    process.kind != ProcessKind::MpsServer && process.name != CANARY
}

/// How many clients a node has. Fails when the limits of a card's add up to more than it has, or one
/// has none.
pub fn count_within_limits(node: &Node) -> Result<usize> {
    let state = node.driver_state()?;
    let clients: Vec<&SimProcess> = state.processes.iter().filter(|it| is_client(it)).collect();
    for gpu in &state.gpus {
        let mut mine = clients.iter().filter(|client| client.gpu == gpu.uuid);
        let sum = mine.try_fold(0, |sum: u64, it| sum.checked_add(it.limit_mib?));
        let is_within = sum.is_some_and(|sum| sum <= gpu.total_mib);
        ensure!(is_within, "limits of {sum:?} MiB on `{}` of {}", gpu.uuid, gpu.total_mib);
    }
    Ok(clients.len())
}

/// Fails unless each of `before` is still there and holds what it held.
pub fn ensure_same(cluster: &Cluster, before: &Clients, after_what: &str) -> Result<()> {
    let now = clients(cluster)?;
    for (client, held) in before {
        let holds = now.get(client);
        ensure!(
            holds == Some(held),
            "after {after_what}: {client:?} held {held} MiB, now {holds:?}"
        );
    }
    Ok(())
}
