//! A campaign on the real cluster: loads, faults, changes of the config and restarts, mixed by a seed,
//! while the invariants are checked.
//!
//! The campaign of `cargo xtask chaos` on a simulated node has many more kinds of faults and a thousand
//! times the pace. What this one adds is what isn't simulated here: kubelets, containerd, an API
//! server, images, cgroups, mount namespaces, and daemons that are processes of the host.

#![expect(clippy::print_stdout, reason = "a person follows a run as it goes")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use mpshare_sim_state::{ProcessKind, Xid};

use crate::clients::{Clients, clients, count_within_limits};
use crate::cluster::Cluster;
use crate::pods::{self, Pod};
use crate::scenarios::{ONE_CARD, SHARING, TWO_CARDS, await_units, choose, rolled_out};

/// The nodes that it breaks.
const NODES: [&str; 2] = [ONE_CARD, TWO_CARDS];

/// So many pods at a time.
const MOST_PODS: usize = 6;

/// For so long something may come of a fault.
const AFTERMATH: Duration = Duration::from_secs(30);

/// How long a look waits for a part that is just starting.
const PAUSE: Duration = Duration::from_millis(700);

/// What a campaign does.
#[derive(Debug, Clone, Copy)]
enum Act {
    Add,
    Delete,
    Label,
    Kill(&'static str),
    RestartKubelet,
    RestartApiServer,
    KillDaemon,
    KillServer,
    Fault,
    Wedge,
    Xid,
}

/// One of each: loads come more often.
const ACTS: [Act; 18] = [
    Act::Add,
    Act::Add,
    Act::Add,
    Act::Add,
    Act::Delete,
    Act::Delete,
    Act::Label,
    Act::Kill("mps-control-daemon"),
    Act::Kill("mps-control-daemon"),
    Act::Kill("device-plugin"),
    Act::Kill("config-manager"),
    Act::RestartKubelet,
    Act::RestartApiServer,
    Act::KillDaemon,
    Act::KillServer,
    Act::Fault,
    Act::Wedge,
    Act::Xid,
];

/// Runs one, and leaves the cluster as it was.
pub fn run(cluster: &mut Cluster, seed: u64, time: Duration) -> Result<()> {
    let mut campaign = Campaign {
        random: fastrand::Rng::with_seed(seed),
        pods: Vec::new(),
        made: 0,
        known: Clients::new(),
        harmed: BTreeMap::new(),
        done: BTreeMap::new(),
        story: Vec::new(),
    };
    let begun = Instant::now();
    while begun.elapsed() < time {
        let step = campaign.step(cluster);
        step.with_context(|| format!("seed {seed}, last acts: {:?}", campaign.last()))?;
    }
    heal(cluster).with_context(|| format!("seed {seed}, at rest"))?;
    let faults: usize = campaign.done.values().sum();
    println!("    seed {seed}: {faults} acts, {} pods, 0 violations", campaign.made);
    for (act, count) in &campaign.done {
        println!("    {count:>5} {act}");
    }
    Ok(())
}

struct Campaign {
    random: fastrand::Rng,
    pods: Vec<String>,
    made: usize,
    /// Clients that were seen to be well.
    known: Clients,
    /// When something was last done to a card that may hurt its clients.
    harmed: BTreeMap<String, Instant>,
    done: BTreeMap<String, usize>,
    story: Vec<String>,
}

impl Campaign {
    fn step(&mut self, cluster: &mut Cluster) -> Result<()> {
        let act = self.random.choice(ACTS).unwrap_or(Act::Add);
        let node = self.random.choice(NODES).unwrap_or(ONE_CARD);
        self.story.push(format!("{act:?} on {node}"));
        if self.act(cluster, act, node).with_context(|| format!("{act:?} on `{node}`"))? {
            *self.done.entry(format!("{act:?}")).or_default() += 1;
        }
        std::thread::sleep(PAUSE);
        self.look(cluster)
    }

    fn last(&self) -> Vec<&String> {
        self.story.iter().rev().take(12).collect()
    }

    /// `false` where there was nothing to do it to.
    fn act(&mut self, cluster: &mut Cluster, act: Act, node: &'static str) -> Result<bool> {
        match act {
            Act::Add => return self.add(cluster, node),
            Act::Delete => return self.delete(cluster),
            Act::Label => {
                let config = if self.random.bool() { "mps-2x" } else { "mps-4x" };
                choose(cluster, node, config)?;
            }
            Act::Kill(role) => return kill(cluster, node, &format!("mpshare {role}")),
            Act::RestartKubelet => cluster.restart_kubelet(node)?,
            Act::RestartApiServer => {
                cluster.control_plane.end_api_server()?;
                std::thread::sleep(PAUSE);
                cluster.control_plane.start_api_server()?;
            }
            Act::KillDaemon => {
                self.harm_all(cluster, node)?;
                return kill(cluster, node, "nvidia-cuda-mps-control -d");
            }
            Act::KillServer | Act::Fault | Act::Wedge | Act::Xid => {
                return self.at_card(cluster, act, node);
            }
        }
        Ok(true)
    }

    fn add(&mut self, cluster: &Cluster, node: &str) -> Result<bool> {
        if self.pods.len() >= MOST_PODS {
            return Ok(false);
        }
        let name = format!("chaos-{}", self.made);
        self.made += 1;
        Pod::new(&name, node, &["--alloc", "1Gi", "--hold", "forever"]).create(cluster)?;
        self.pods.push(name);
        Ok(true)
    }

    fn delete(&mut self, cluster: &Cluster) -> Result<bool> {
        if self.pods.is_empty() {
            return Ok(false);
        }
        let name = self.pods.swap_remove(self.random.usize(..self.pods.len()));
        // Until its process is gone; a forced end is for the campaign on the simulated node, which knows
        // whose each process is.
        cluster.kubectl(&["delete", "pod", &name, "--timeout=60s"])?;
        self.known = clients(cluster)?;
        Ok(true)
    }

    /// Something that befalls one card, of which all clients may be hurt.
    fn at_card(&mut self, cluster: &mut Cluster, act: Act, node: &str) -> Result<bool> {
        let state = cluster.node(node)?.driver_state()?;
        let Some(gpu) = state.gpus.get(self.random.usize(..state.gpus.len())) else {
            return Ok(false);
        };
        let uuid = gpu.uuid.clone();
        let is_server = |kind: ProcessKind| kind == ProcessKind::MpsServer;
        let server = state.processes.iter().find(|it| it.gpu == uuid && is_server(it.kind));
        let Some(server) = server.map(|it| it.id.pid) else { return Ok(false) };
        self.harmed.insert(uuid.clone(), Instant::now());
        let host = cluster.node(node)?;
        match act {
            Act::KillServer => host.kill(server)?,
            Act::Fault => host.change_driver(|it| it.faults.faulted_servers.push(server))?,
            Act::Wedge => host.change_driver(|it| it.faults.wedged_servers.push(server))?,
            _ => host.change_driver(|state| {
                state.sequence += 1;
                let critical = Xid { sequence: state.sequence, xid: 79 };
                let meant = state.gpus.iter_mut().filter(|gpu| gpu.uuid == uuid);
                meant.for_each(|gpu| gpu.xids.push(critical));
            })?,
        }
        Ok(true)
    }

    fn harm_all(&mut self, cluster: &mut Cluster, node: &str) -> Result<()> {
        for gpu in cluster.node(node)?.driver_state()?.gpus {
            self.harmed.insert(gpu.uuid, Instant::now());
        }
        Ok(())
    }

    /// No card has more than it has, and who was well is, unless its card was harmed.
    fn look(&mut self, cluster: &Cluster) -> Result<()> {
        within_limits(cluster)?;
        let now = clients(cluster)?;
        for client in self.known.keys() {
            let harmed = self.harmed.get(&client.gpu);
            let is_excused = harmed.is_some_and(|at| at.elapsed() < AFTERMATH);
            ensure!(is_excused || now.contains_key(client), "{client:?} was lost");
        }
        self.known = now;
        Ok(())
    }
}

/// Left alone, everything is as it was.
fn heal(cluster: &mut Cluster) -> Result<()> {
    for node in NODES {
        cluster.node(node)?.change_driver(|state| state.faults.wedged_servers.clear())?;
    }
    pods::delete_all(cluster)?;
    rolled_out(cluster)?;
    for (node, units) in SHARING {
        choose(cluster, node, "mps-2x")?;
        await_units(cluster, node, units)?;
    }
    for node in NODES {
        Pod::new(&format!("after-{node}"), node, &["--alloc", "1Gi", "--hold", "forever"])
            .start(cluster)?;
    }
    within_limits(cluster)?;
    pods::delete_all(cluster)
}

/// Ends a process of a node by force.
fn kill(cluster: &mut Cluster, node: &str, command: &str) -> Result<bool> {
    let node = cluster.node(node)?;
    let Some(pid) = node.pids_of(command)?.first().copied() else { return Ok(false) };
    node.kill(pid)?;
    Ok(true)
}

/// On all nodes.
fn within_limits(cluster: &Cluster) -> Result<()> {
    cluster.nodes.iter().try_for_each(|node| count_within_limits(node).map(drop))
}
