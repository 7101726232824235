//! What processes do past their shares, and what befalls servers: one pod pays for it, or one card, and
//! who is concerned is told.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mpshare_sim_state::{ComputeMode, ProcessKind};

use super::{ONE_CARD, RELEASE, TWO_CARDS, await_units, rolled_out};
use crate::clients::{clients, ensure_same};
use crate::cluster::Cluster;
use crate::pods::{self, Pod};
use crate::wait::eventually;

/// Two seconds of grace, and canaries every few seconds.
const STRICT: &str = "--set mps.overShare=evict-process --set mps.overShareGraceSeconds=2 \
    --set mps.faultGraceSeconds=4 --set mps.canaryPeriodSeconds=10 --set mps.canaryDeadlineSeconds=3";

const LINGER: [&str; 5] = ["--alloc", "1Gi", "--hold", "forever", "--linger"];

/// Processes that together pass their pod's share: the newest end, the pod is told the numbers, and
/// its neighbour goes on.
pub(super) fn shares_as_sums(cluster: &mut Cluster) -> Result<()> {
    strict(cluster)?;
    Pod::new("neighbour", ONE_CARD, &["--alloc", "8Gi", "--hold", "forever"]).start(cluster)?;
    let neighbour = clients(cluster)?;
    ensure!(neighbour.len() == 1, "one client was started: {neighbour:?}");
    // Four of 5 GiB and a context each on half a card of 32.
    let many = ["--alloc", "5Gi", "--hold", "forever", "--processes", "4"];
    Pod::new("greedy", ONE_CARD, &many).create(cluster)?;
    let told = await_event(cluster, "greedy", "ProcessEvicted")?;
    let used = 4 * (5 * 1024 + 312);
    for part in [format!("{used} MiB together"), "their share is 16 GiB".to_owned()] {
        ensure!(told.contains(&part), "`{part}` isn't in `{told}`");
    }
    println!("    {}", told.trim());
    eventually("three are left", Duration::from_secs(30), || Ok(clients(cluster)?.len() == 4))?;
    ensure_same(cluster, &neighbour, "an eviction beside it")?;
    let bomb = ["--alloc", "1Gi", "--hold", "forever", "--processes", "40"];
    cluster.kubectl(&["delete", "pod", "greedy", "--grace-period=1"])?;
    Pod::new("bomb", ONE_CARD, &bomb).create(cluster)?;
    await_event(cluster, "bomb", "ProcessEvicted")?;
    eventually("the others fit", Duration::from_mins(1), || {
        let share = 16 * 1024;
        let of_bomb = clients(cluster)?.values().sum::<u64>().saturating_sub(8 * 1024 + 312);
        Ok(of_bomb <= share && of_bomb > share - 2 * (1024 + 312))
    })?;
    ensure_same(cluster, &neighbour, "forty processes beside it")?;
    lenient(cluster)
}

/// A fatal fault on one card: its pods are told and end, the other card's see nothing, and all is
/// offered again.
pub(super) fn fault_of_one_card(cluster: &mut Cluster) -> Result<()> {
    strict(cluster)?;
    for name in ["one", "two", "three", "four"] {
        Pod::new(name, TWO_CARDS, &LINGER).start(cluster)?;
    }
    let before = clients(cluster)?;
    ensure!(before.len() == 4, "four clients were started: {before:?}");
    let hit = before.keys().next().context("no client")?.gpu.clone();
    let spared = before.into_iter().filter(|(client, _)| client.gpu != hit).collect();
    let server = server_of(cluster, TWO_CARDS, &hit)?;
    cluster.node(TWO_CARDS)?.change_driver(|state| state.faults.faulted_servers.push(server))?;
    let columns = "custom-columns=R:.reason,P:.involvedObject.name";
    let of_pods = "--field-selector=involvedObject.kind=Pod";
    let told = || cluster.kubectl(&["get", "events", of_pods, "-o", columns]);
    let count =
        |code: &str| anyhow::Ok(told()?.lines().filter(|line| line.starts_with(code)).count());
    eventually("both pods of the card are told", Duration::from_secs(30), || {
        Ok(count("ServerFault ")? == 2 && count("LingererEnded ")? == 2)
    })?;
    println!(
        "    {}",
        told()?
            .lines()
            .filter(|it| it.contains("Fault") || it.contains("Lingerer"))
            .collect::<Vec<_>>()
            .join("; ")
    );
    await_units(cluster, TWO_CARDS, 4)?;
    ensure_same(cluster, &spared, "a fault of the other card")?;
    lenient(cluster)
}

/// A server that takes no new clients is found by a canary, in the host's mount namespace as clients
/// are in theirs, and replaced once its clients have ended.
pub(super) fn wedged_server(cluster: &mut Cluster) -> Result<()> {
    strict(cluster)?;
    Pod::new("lives", ONE_CARD, &["--alloc", "1Gi", "--hold", "forever"]).start(cluster)?;
    let lives = clients(cluster)?;
    let gpu = lives.keys().next().context("no client")?.gpu.clone();
    let server = server_of(cluster, ONE_CARD, &gpu)?;
    let log = format!("/run/nvidia/mps/nvidia.com/gpu/{}/log/server.log", &gpu[..12]);
    let log = cluster.node(ONE_CARD)?.host().path(&log);
    let served = || anyhow::Ok(std::fs::read_to_string(&log)?.matches("Worker created").count());
    let so_far = served()?;
    eventually("canaries are served", Duration::from_mins(1), || Ok(served()? >= so_far + 2))?;
    cluster.node(ONE_CARD)?.change_driver(|state| state.faults.wedged_servers.push(server))?;
    await_node_event(cluster, ONE_CARD, "ServerWedged")?;
    ensure_same(cluster, &lives, "its server was found to take nobody")?;
    ensure!(server_of(cluster, ONE_CARD, &gpu)? == server, "it was replaced under a client");
    pods::delete_all(cluster)?;
    await_node_event(cluster, ONE_CARD, "ServerReplaced")?;
    await_units(cluster, ONE_CARD, 2)?;
    ensure!(server_of(cluster, ONE_CARD, &gpu)? != server, "it wasn't replaced");
    lenient(cluster)
}

/// A container that is root raises its limits and ends its daemon: told, put right, and no client of
/// its neighbour lost.
pub(super) fn root_tenant(cluster: &mut Cluster) -> Result<()> {
    strict(cluster)?;
    Pod::new("neighbour", ONE_CARD, &["--alloc", "8Gi", "--hold", "forever"]).start(cluster)?;
    let neighbour = clients(cluster)?;
    Pod::new("root", ONE_CARD, &["--hold", "forever"]).start(cluster)?;
    let say = |commands: &str| {
        let line = format!("printf '{commands}\\n' | nvidia-cuda-mps-control");
        cluster.kubectl(&["exec", "root", "--", "/bin/sh", "-c", &line])
    };
    eventually("its session is let in", Duration::from_secs(30), || {
        // Somebody else's may be open, and then it says nothing.
        let said = say("set_default_active_thread_percentage 90")?;
        Ok(said.contains("90.0"))
    })?;
    let told = await_node_event(cluster, ONE_CARD, "TamperedWith")?;
    println!("    {}", told.trim());
    eventually("the percentage is what it was", Duration::from_secs(10), || {
        Ok(say("get_default_active_thread_percentage")?.contains("50.0"))
    })?;
    let mut quit = cluster.command("kubectl");
    quit.args(["exec", "root", "--", "/bin/sh", "-c", "echo quit | nvidia-cuda-mps-control"]);
    let mut quit =
        quit.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn()?;
    await_node_event(cluster, ONE_CARD, "DaemonQuitting")?;
    ensure_same(cluster, &neighbour, "a tenant's quit")?;
    pods::delete_all(cluster)?;
    quit.wait()?;
    await_units(cluster, ONE_CARD, 2)?;
    Pod::new("later", ONE_CARD, &["--alloc", "1Gi", "--hold", "forever"]).start(cluster)?;
    lenient(cluster)
}

/// A node is emptied for its driver's upgrade, pods and all, and comes back.
pub(super) fn drain(cluster: &mut Cluster) -> Result<()> {
    for name in ["one", "two", "three"] {
        Pod::new(name, TWO_CARDS, &["--alloc", "1Gi", "--hold", "forever"]).start(cluster)?;
    }
    let before = clients(cluster)?;
    let first = before.keys().next().context("no client")?.gpu.clone();
    let spared = before.iter().filter(|(client, _)| client.gpu != first);
    let spared = spared.map(|(client, held)| (client.clone(), *held)).collect();
    let said = cluster
        .shell(&format!("kubectl mpshare drain {TWO_CARDS}/{first} --evict --timeout 2m 2>&1"))?;
    println!("{}", said.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n"));
    ensure_same(cluster, &spared, "a drain of the other card")?;
    await_units(cluster, TWO_CARDS, 2)?;
    let mode = |cluster: &mut Cluster| {
        let state = cluster.node(TWO_CARDS)?.driver_state()?;
        let gpu = state.gpus.iter().find(|gpu| gpu.uuid == first).context("no such card")?;
        anyhow::Ok((gpu.compute_mode, state.processes.iter().filter(|it| it.gpu == first).count()))
    };
    ensure!(mode(cluster)? == (ComputeMode::Default, 0), "it isn't empty: {:?}", mode(cluster)?);
    cluster.shell(&format!("kubectl mpshare drain {TWO_CARDS} --evict --timeout 2m 2>&1"))?;
    ensure!(clients(cluster)?.is_empty(), "clients are left: {:?}", clients(cluster)?);
    await_units(cluster, TWO_CARDS, 0)?;
    cluster.shell(&format!("kubectl mpshare undrain {TWO_CARDS}"))?;
    await_units(cluster, TWO_CARDS, 4)?;
    pods::delete_all(cluster)
}

fn strict(cluster: &Cluster) -> Result<()> {
    cluster.shell(&format!("helm upgrade {RELEASE} {STRICT}"))?;
    rolled_out(cluster)?;
    await_units(cluster, ONE_CARD, 2)?;
    await_units(cluster, TWO_CARDS, 4)
}

fn lenient(cluster: &Cluster) -> Result<()> {
    pods::delete_all(cluster)?;
    cluster.kubectl(&["delete", "events", "--all"])?;
    cluster.shell(&format!("helm upgrade {RELEASE}"))?;
    rolled_out(cluster)
}

fn server_of(cluster: &mut Cluster, node: &str, gpu: &str) -> Result<i32> {
    let state = cluster.node(node)?.driver_state()?;
    let server = |kind: ProcessKind| kind == ProcessKind::MpsServer;
    let found = state.processes.iter().find(|it| server(it.kind) && it.gpu == gpu);
    Ok(found.with_context(|| format!("no server on {gpu}"))?.id.pid)
}

/// The message of an Event on a pod.
fn await_event(cluster: &Cluster, pod: &str, code: &str) -> Result<String> {
    let selector = format!("involvedObject.kind=Pod,involvedObject.name={pod},reason={code}");
    await_message(cluster, &["get", "events", "--field-selector", &selector], code)
}

fn await_node_event(cluster: &Cluster, node: &str, code: &str) -> Result<String> {
    let selector = format!("involvedObject.kind=Node,involvedObject.name={node},reason={code}");
    await_message(cluster, &["get", "events", "-n", "default", "--field-selector", &selector], code)
}

fn await_message(cluster: &Cluster, get: &[&str], code: &str) -> Result<String> {
    let mut said = String::new();
    eventually(&format!("an Event {code}"), Duration::from_mins(1), || {
        said = cluster
            .kubectl(&[get, &["-o", "jsonpath={.items[0].message}"]].concat())
            .unwrap_or_default();
        Ok(!said.is_empty())
    })?;
    Ok(said)
}
