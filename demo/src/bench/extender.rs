//! `cargo xtask bench extender`: what kube-scheduler's calls cost, as the real program answers them
//! over HTTP.
//!
//! The API server beside it is the one in memory, in this process. It is part of a bind, so its own
//! share is measured in the same run. A real one is in `cargo xtask bench extender --cluster`.

mod http;
pub(super) mod scene;

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::process;
use super::sample::Goal;
use http::Connection;
use scene::Scene;

/// How many nodes there are.
const SIZES: [usize; 3] = [100, 1_000, 5_000];

/// The size for which goals are.
const USUAL: usize = 1_000;

/// Binds in flight at a time; kube-scheduler has one per pod.
const BINDERS: usize = 8;

/// The most that five times as many nodes may cost; the rest of 5 is noise.
const LINEAR: f64 = 5.5;

/// More than a GPU has.
const TOO_MUCH: usize = 16;

/// How much is measured.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Calls of each kind.
    #[arg(long, default_value_t = 1_000)]
    calls: usize,
    /// Binds, through the extender and directly.
    #[arg(long, default_value_t = 500)]
    binds: usize,
    /// Pods that are bound before.
    #[arg(long, default_value_t = 2_000)]
    pods: usize,
    /// Print one JSON document instead.
    #[arg(long)]
    json: bool,
}

/// Measures and prints; an error when a goal was missed.
pub(crate) async fn run(args: Args) -> Result<()> {
    let (mut goals, mut costs) = (Vec::new(), Vec::new());
    for nodes in SIZES {
        eprintln!("{nodes} nodes");
        let scene = Scene::start(nodes, args.pods).await?;
        let cost = questions(&scene, &args, &mut goals).await?;
        costs.push((nodes, cost));
        binds(&scene, &args, &mut goals).await?;
        let rss = process::rss(scene.pid())?;
        goals.push(Goal::of(format!("{nodes} nodes: RSS"), "MiB", vec![rss]));
    }
    if let [.., (less, few), (more, many)] = costs.as_slice() {
        for ((what, few), (_, many)) in few.iter().zip(many) {
            let name = format!("{what}: CPU at {more} nodes / at {less}");
            goals.push(Goal::of(name, "x", vec![many / few]).below(LINEAR));
        }
    }
    super::tell(goals, args.json)
}

/// Asks all questions and returns the CPU time that each kind costs, in ms.
async fn questions(
    scene: &Scene,
    args: &Args,
    goals: &mut Vec<Goal>,
) -> Result<Vec<(&'static str, f64)>> {
    let mut costs = Vec::new();
    for (what, verb, units) in [
        ("filter", "filter", 3),
        ("failing filter", "filter", TOO_MUCH),
        ("prioritize", "prioritize", 3),
    ] {
        let body = json!({
            "Pod": scene::pod("asks", units), "Nodes": null, "NodeNames": scene.nodes,
        });
        let asked = ask(scene, verb, &body.to_string(), args.calls).await?;
        if verb == "filter" {
            check(&asked.answer, if units == TOO_MUCH { 0 } else { scene.nodes.len() })?;
        }
        let nodes = scene.nodes.len();
        let took = Goal::of(format!("{nodes} nodes: {what}"), "ms", asked.took).at(0.99);
        let is_goal = nodes == USUAL;
        let limit = if is_goal && verb == "filter" { 2.0 } else { f64::INFINITY };
        goals.push(took.below(limit));
        goals.push(Goal::of(format!("{nodes} nodes: {what}"), "per s", vec![asked.per_second]));
        goals.push(Goal::of(format!("{nodes} nodes: {what}: CPU"), "ms", vec![asked.cpu]));
        let bytes = f64::from(u32::try_from(asked.answer.len())?) / 1024.0;
        let limit = if is_goal { 64.0 } else { f64::INFINITY };
        goals.push(
            Goal::of(format!("{nodes} nodes: {what}: answer"), "KiB", vec![bytes]).below(limit),
        );
        costs.push((what, asked.cpu));
    }
    Ok(costs)
}

/// What came of asking one question many times.
struct Asked {
    /// Milliseconds of each call.
    took: Vec<f64>,
    per_second: f64,
    /// CPU milliseconds of the extender per call.
    cpu: f64,
    answer: Vec<u8>,
}

async fn ask(scene: &Scene, verb: &str, body: &str, calls: usize) -> Result<Asked> {
    let path = format!("/gpushare-scheduler/{verb}");
    let mut connection = scene.connect().await?;
    let mut answer = Vec::new();
    for _ in 0..calls / 10 {
        answer = connection.post(&path, body).await?;
    }
    let mut took = Vec::with_capacity(calls);
    let (begun, cpu) = (Instant::now(), process::cpu(scene.pid())?);
    for _ in 0..calls {
        let call = Instant::now();
        answer = connection.post(&path, body).await?;
        took.push(call.elapsed().as_secs_f64() * 1000.0);
    }
    let calls = f64::from(u32::try_from(calls)?);
    let per_second = calls / begun.elapsed().as_secs_f64();
    let cpu = (process::cpu(scene.pid())? - cpu) / calls;
    Ok(Asked { took, per_second, cpu, answer })
}

/// The most nodes that an answer names.
const MOST_NAMED: usize = 100;

/// An answer that is wrong would be fast for nothing.
fn check(answer: &[u8], fitting: usize) -> Result<()> {
    let answer: Value = serde_json::from_slice(answer)?;
    let names = answer.get("NodeNames").and_then(Value::as_array).context("no names")?;
    let named = fitting.min(MOST_NAMED);
    ensure!(names.len() == named, "{} nodes have room instead of {named}", names.len());
    Ok(())
}

/// Binds through the extender, and at the API server without it.
async fn binds(scene: &Scene, args: &Args, goals: &mut Vec<Goal>) -> Result<()> {
    let nodes = scene.nodes.len();
    let cpu = process::cpu(scene.pid())?;
    let pods = scene.waiting_pods("bind", args.binds).await?;
    let through = bind_all(scene, &pods, Way::Extender).await?;
    let cpu = process::cpu(scene.pid())? - cpu;
    let pods = scene.waiting_pods("direct", args.binds).await?;
    let direct = bind_all(scene, &pods, Way::Directly).await?;
    let name = |what: &str| format!("{nodes} nodes: bind{what}");
    goals.push(Goal::of(name(""), "ms", through.took).at(0.99));
    goals.push(Goal::of(name(""), "per s", vec![through.per_second]));
    let share = through.per_second / direct.per_second;
    goals.push(Goal::of(name(" / the API server in memory alone"), "x of its rate", vec![share]));
    let count = f64::from(u32::try_from(args.binds)?);
    goals.push(Goal::of(name(": CPU, with the pod's events"), "ms", vec![cpu / count]));
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Extender,
    Directly,
}

struct Bound {
    took: Vec<f64>,
    per_second: f64,
}

async fn bind_all(scene: &Scene, pods: &[Value], way: Way) -> Result<Bound> {
    let host = match way {
        Way::Extender => scene.address.clone(),
        Way::Directly => scene.kube.url().trim_start_matches("http://").to_owned(),
    };
    let mut tasks = Vec::new();
    let begun = Instant::now();
    for binder in 0..BINDERS {
        let calls = pods.iter().enumerate().skip(binder).step_by(BINDERS).map(|(at, pod)| {
            let node = scene.nodes.get(at % scene.nodes.len()).context("no such node")?;
            Ok(call(pod, node, way))
        });
        let calls = calls.collect::<Result<Vec<_>>>()?;
        let host = host.clone();
        tasks.push(tokio::spawn(async move { bind_some(&host, &calls, way).await }));
    }
    let mut took = Vec::new();
    for task in tasks {
        took.extend(task.await??);
    }
    let per_second = f64::from(u32::try_from(pods.len())?) / begun.elapsed().as_secs_f64();
    Ok(Bound { took, per_second })
}

async fn bind_some(host: &str, calls: &[(String, String)], way: Way) -> Result<Vec<f64>> {
    let mut connection = Connection::to(host).await?;
    let mut took = Vec::new();
    for (path, body) in calls {
        let call = Instant::now();
        let answer = connection.post(path, body).await?;
        took.push(call.elapsed().as_secs_f64() * 1000.0);
        ensure!(
            way == Way::Directly || answer == br#"{"Error":""}"#,
            "not bound: {}",
            String::from_utf8_lossy(&answer)
        );
    }
    Ok(took)
}

/// Path and body of a bind.
fn call(pod: &Value, node: &str, way: Way) -> (String, String) {
    let text = |key: &str| pod.pointer(key).and_then(Value::as_str).unwrap_or_default();
    let (name, uid) = (text("/metadata/name"), text("/metadata/uid"));
    let (path, body) = match way {
        Way::Extender => (
            "/gpushare-scheduler/bind".to_owned(),
            json!({"PodName": name, "PodNamespace": "default", "PodUID": uid, "Node": node}),
        ),
        Way::Directly => (
            format!("/api/v1/namespaces/default/pods/{name}/binding"),
            json!({
                "apiVersion": "v1", "kind": "Binding",
                "metadata": {"name": name, "namespace": "default", "uid": uid},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            }),
        ),
    };
    (path, body.to_string())
}
