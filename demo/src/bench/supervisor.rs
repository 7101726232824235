//! `cargo xtask bench supervisor`: what a full node costs its supervisor: 8 cards with 48 clients
//! each, as many as MPS takes.
//!
//! The clients are containers whose processes do nothing, and contexts that the simulated driver
//! has of them: the supervisor sees them in NVML and `/proc` as it sees real ones. Simulated NVML
//! reads and writes a JSON file with all of them for each call, in the supervisor's own threads;
//! that is measured there and taken off, since a real driver does no such thing. What it does
//! instead isn't in the figures.

use std::time::Duration;

use anyhow::{Context as _, Result};
use mpshare_sim_state::{ProcId, ProcessKind, SimProcess, SimState};
use mpshare_testkit::fakekubelet::{Phase, PodHandle, pod};
use mpshare_testkit::simnode::{NODE, Role, Setup, SimNode};
use serde_json::json;

use super::process;
use super::sample::Goal;
use crate::story::PATIENCE;

const GPU: &str = "nvidia.com/gpu";

/// A node of the largest kind.
const CARDS: [(&str, &str); 8] = [
    ("a100", "GPU-10000000-0000-4000-8000-000000000000"),
    ("a100", "GPU-10000001-0000-4000-8000-000000000001"),
    ("a100", "GPU-10000002-0000-4000-8000-000000000002"),
    ("a100", "GPU-10000003-0000-4000-8000-000000000003"),
    ("a100", "GPU-10000004-0000-4000-8000-000000000004"),
    ("a100", "GPU-10000005-0000-4000-8000-000000000005"),
    ("a100", "GPU-10000006-0000-4000-8000-000000000006"),
    ("a100", "GPU-10000007-0000-4000-8000-000000000007"),
];

/// Clients of a card: what MPS takes at most before driver 590.
const CLIENTS: usize = 48;

/// How much is measured.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seconds over which CPU is measured.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Print one JSON document instead.
    #[arg(long)]
    json: bool,
}

/// Measures and prints; an error when a goal was missed.
pub(crate) async fn run(args: Args) -> Result<()> {
    let mut node = full_node().await?;
    let meter = node.store().dir().join("nvml-cpu");
    std::fs::create_dir(&meter)?;
    let pid = node.role_pid(Role::Supervisor).context("no supervisor")?;
    let meter = meter.join(pid.to_string());
    // What the clients' coming leaves to be done.
    tokio::time::sleep(Duration::from_secs(12)).await;
    let (before, driver, system) = (process::cpu(pid)?, simulated(&meter)?, system(pid)?);
    tokio::time::sleep(Duration::from_secs(args.seconds)).await;
    let wall = f64::from(u32::try_from(args.seconds)?) * 10.0;
    let all = (process::cpu(pid)? - before) / wall;
    let driver = (simulated(&meter)? - driver) / wall;
    let percent = |what: &str, value: f64| Goal::of(what, "% of a core", vec![value]);
    let goals = vec![
        percent("supervisor: CPU without the simulated driver's", all - driver).below(2.0),
        percent("the simulated driver in it", driver),
        percent("time in the kernel, both (/proc, files)", (self::system(pid)? - system) / wall),
        Goal::of("supervisor: RSS", "MiB", vec![process::rss(pid)?]).below(20.0),
    ];
    seen(&node)?;
    anyhow::ensure!(node.ended_roles().is_empty(), "a role has ended");
    super::tell(goals, args.json)
}

/// All cards cut into as many shares as they take clients, and a client on each.
async fn full_node() -> Result<SimNode> {
    let setup = Setup { cards: CARDS.to_vec(), ..Setup::two_cards() };
    let mut node = SimNode::start(setup).await?;
    let text = format!("sharing: {{mps: {{resources: [{{name: {GPU}, replicas: {CLIENTS}}}]}}}}");
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"full": text},
        "metadata": {"name": "nvidia-device-plugin-configs", "namespace": "kube-system"},
    });
    node.kube().create(map).await?;
    node.kube().patch_node_label(NODE, "nvidia.com/device-plugin.config", "full").await?;
    node.start_product()?;
    let units = CARDS.len() * CLIENTS;
    node.kubelet().wait_allocatable(GPU, units, PATIENCE).await?;
    eprintln!("starting {units} clients");
    let client =
        |n| pod(&format!("client-{n}")).container("c").gpus(GPU, 1).command(["sleep", "inf"]);
    let pods: Vec<PodHandle> = (0..units).map(|n| node.kubelet().admit(client(n))).collect();
    for pod in &pods {
        pod.wait_phase(Phase::Running, 4 * PATIENCE).await?;
    }
    node.store().update(|state| pods.iter().try_for_each(|pod| open_context(state, pod)))??;
    while seen(&node).is_err() {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(node)
}

/// Has the simulated driver know a pod's process as a client of its card.
fn open_context(state: &mut SimState, pod: &PodHandle) -> Result<()> {
    let ids = pod.devices("c", GPU);
    let gpu = ids.first().and_then(|id| id.split("::").next()).context("no device")?;
    let pid = pod.status().pids().into_values().next().context("no process")?;
    let is_server = |it: &&SimProcess| it.kind == ProcessKind::MpsServer && it.gpu == gpu;
    let server = state.processes.iter().find(is_server).context("no server")?.id.pid;
    state.processes.push(SimProcess {
        id: ProcId::of(i32::try_from(pid)?).context("the process has ended")?,
        uid: 0,
        name: "sleep".to_owned(),
        gpu: gpu.to_owned(),
        kind: ProcessKind::MpsClient { server },
        used_mib: 700,
        limit_mib: Some(853),
        percent_tenths: 20,
        sticky_error: None,
    });
    Ok(())
}

/// Whether the supervisor reports all clients, each with its pod.
fn seen(node: &SimNode) -> Result<()> {
    let status = node.status().context("no report")?;
    for gpu in &status.gpus {
        let clients = gpu.users().filter(|user| user.pod_uid.is_some()).count();
        anyhow::ensure!(clients == CLIENTS, "{clients} clients are seen on `{}`", gpu.uuid);
        anyhow::ensure!(gpu.findings.is_empty(), "{:?}", gpu.findings);
    }
    Ok(())
}

/// CPU milliseconds of the simulated driver in a process.
fn simulated(meter: &std::path::Path) -> Result<f64> {
    let text = std::fs::read_to_string(meter).context("the simulated driver measures nothing")?;
    Ok(text.trim().parse::<f64>()? / 1_000_000.0)
}

/// CPU milliseconds of a process in the kernel; the kernel counts ticks of 10 ms.
fn system(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit_once(')').context("not a stat line")?.1;
    let ticks: f64 = fields.split_whitespace().nth(12).context("no figure")?.parse()?;
    Ok(ticks * 10.0)
}
