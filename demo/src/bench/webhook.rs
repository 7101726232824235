//! `cargo xtask bench webhook`: what the API server's reviews cost, as the real program answers them
//! over TLS.
//!
//! Reviews are sent when they are due. One that has to wait because an answer before it came late is
//! timed from when it was due, as it is for people; that this program wakes up late isn't counted.

mod pods;
mod scene;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use super::process;
use super::sample::Goal;
use scene::Scene;

/// How many connections are kept: an API server has a few to each webhook.
const CONNECTIONS: u32 = 4;

/// How much is measured.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Reviews per second.
    #[arg(long, default_value_t = 200)]
    rate: u32,
    /// For so many seconds.
    #[arg(long, default_value_t = 30)]
    seconds: u32,
    /// Nodes with GPUs, which the webhook knows of.
    #[arg(long, default_value_t = 1_000)]
    nodes: usize,
    /// New connections whose set-up is measured.
    #[arg(long, default_value_t = 200)]
    handshakes: usize,
    /// Print one JSON document instead.
    #[arg(long)]
    json: bool,
}

/// Measures and prints; an error when a goal was missed.
pub(crate) async fn run(args: Args) -> Result<()> {
    let scene = Arc::new(Scene::start(args.nodes).await?);
    let mut goals = vec![idle(&scene)?];
    let (begun, cpu) = (Instant::now(), process::cpu(scene.pid())?);
    let mut tasks = Vec::new();
    for number in 0..CONNECTIONS {
        let (scene, rate, seconds) = (Arc::clone(&scene), args.rate, args.seconds);
        tasks.push(tokio::spawn(async move { reviews(&scene, number, rate, seconds).await }));
    }
    let mut took = Vec::new();
    for task in tasks {
        took.extend(task.await??);
    }
    let wall = begun.elapsed().as_secs_f64();
    let cpu = (process::cpu(scene.pid())? - cpu) / 1000.0;
    let count = f64::from(u32::try_from(took.len())?);
    let name = |what: &str| format!("{} reviews/s: {what}", args.rate);
    goals.push(Goal::of(name("answer"), "ms", took).at(0.99).below(5.0));
    goals.push(Goal::of(name("rate"), "per s", vec![count / wall]));
    goals.push(Goal::of(name("CPU"), "% of a core", vec![cpu / wall * 100.0]));
    goals.push(Goal::of(name("CPU of a review"), "ms", vec![cpu * 1000.0 / count]));
    let rss = process::rss(scene.pid())?;
    goals.push(Goal::of(name("RSS"), "MiB", vec![rss]).below(20.0));
    goals.push(handshakes(&scene, args.handshakes).await?);
    super::tell(goals, args.json)
}

/// What it needs before it is asked anything.
fn idle(scene: &Scene) -> Result<Goal> {
    let name = format!("{} nodes: RSS before the first review", scene.nodes);
    Ok(Goal::of(name, "MiB", vec![process::rss(scene.pid())?]).below(20.0))
}

/// Sends this connection's part of the reviews and returns how long each took, in ms.
async fn reviews(scene: &Scene, number: u32, rate: u32, seconds: u32) -> Result<Vec<f64>> {
    let mut connection = scene.connect().await?;
    let bodies = pods::reviews()?;
    let begun = Instant::now() + Duration::from_millis(100);
    let mut took = Vec::new();
    for at in (number..rate * seconds).step_by(CONNECTIONS.try_into()?) {
        let due = begun + Duration::from_secs(1) * at / rate;
        let is_waited_for = Instant::now() < due;
        sleep_until(due).await;
        let asked = if is_waited_for { Instant::now() } else { due };
        let (path, body) =
            bodies.get(usize::try_from(at)? % bodies.len()).context("no reviews to send")?;
        let answer = connection.post(path, body).await?;
        took.push(asked.elapsed().as_secs_f64() * 1000.0);
        check(&answer)?;
    }
    Ok(took)
}

/// How long a new connection takes, with one review.
async fn handshakes(scene: &Scene, count: usize) -> Result<Goal> {
    let bodies = pods::reviews()?;
    let (path, body) = bodies.first().context("no reviews to send")?;
    let mut took = Vec::new();
    for _ in 0..count {
        let begun = Instant::now();
        scene.connect().await?.post(path, body).await?;
        took.push(begun.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(Goal::of("new connection with one review", "ms", took).at(0.99))
}

/// An answer that is wrong would be fast for nothing.
fn check(answer: &[u8]) -> Result<()> {
    let answer: Value = serde_json::from_slice(answer)?;
    let allowed = answer.pointer("/response/allowed").and_then(Value::as_bool);
    ensure!(allowed == Some(true), "not allowed: {answer}");
    Ok(())
}
