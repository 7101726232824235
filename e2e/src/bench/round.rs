//! One round: pods wait, a scheduler is started, and they are counted as they get a node.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use serde_json::Value;

use super::objects::Size;
use super::requests::Requests;
use super::waiting::Waiting;
use crate::cluster::{ControlPlane, output_of};
use crate::wait::eventually;

/// How long the extender has to be ready.
const PATIENCE: Duration = Duration::from_mins(1);

/// Who decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// kube-scheduler alone, which counts units per node.
    Alone,
    /// kube-scheduler and our extender.
    WithExtender,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Alone => "without extender",
            Self::WithExtender => "with extender",
        })
    }
}

/// What was seen in a round.
#[derive(Debug, Serialize)]
pub struct Round {
    /// Pods that got a node per second, from the first to the last.
    pub per_second: f64,
    /// CPU milliseconds per pod of each program in that time.
    pub cpu: BTreeMap<String, f64>,
}

impl Round {
    pub(super) fn run(plane: &mut ControlPlane, size: Size, way: Way) -> Result<Self> {
        Requests::of(plane).create(&size.pods())?;
        let mut waiting = Waiting::follow(Requests::of(plane))?;
        for seen in 0..size.pods {
            waiting.until("ADDED").with_context(|| format!("{seen} pods are there"))?;
        }
        let config = match way {
            Way::Alone => include_str!("../../cluster/bench-scheduler.yaml").to_owned(),
            Way::WithExtender => {
                start_extender(plane)?;
                // The chart's, as a test sees to.
                include_str!("../../cluster/bench-second-scheduler.yaml").to_owned()
            }
        };
        plane.start_scheduler(&config)?;
        let round = count(&mut waiting, plane, size.pods);
        // Before its end, so that a failed round leaves nothing to the next.
        plane.end_scheduler()?;
        if way == Way::WithExtender {
            let checked = round.is_ok().then(|| check(plane)).transpose();
            plane.end_extender()?;
            checked?;
        }
        Requests::of(plane).delete_pods()?;
        round
    }
}

fn start_extender(plane: &mut ControlPlane) -> Result<()> {
    plane.start_extender()?;
    eventually("the extender is ready", PATIENCE, || Ok(ask_extender(plane, "readyz").is_ok()))
}

fn ask_extender(plane: &ControlPlane, page: &str) -> Result<String> {
    let mut curl = plane.host().command("curl");
    output_of(curl.args(["-sS", "--fail", &format!("http://127.0.0.1:39999/{page}")]))
}

/// A wrong placement would be fast for nothing.
fn check(plane: &ControlPlane) -> Result<()> {
    let text = ask_extender(plane, "gpushare-scheduler/inspect")?;
    let inspection: Value = serde_json::from_str(&text)?;
    let nodes = inspection.get("nodes").and_then(Value::as_array).context("no nodes")?;
    for node in nodes {
        ensure!(node.get("unplaced").is_none(), "pods without a GPU: {node}");
        for gpu in node.get("devs").and_then(Value::as_array).into_iter().flatten() {
            let units = |key: &str| gpu.get(key).and_then(Value::as_u64).context("no units");
            ensure!(units("usedGPU")? <= units("totalGPU")?, "over-committed: {gpu}");
        }
    }
    Ok(())
}

fn count(waiting: &mut Waiting, plane: &ControlPlane, pods: usize) -> Result<Round> {
    let mut times = Vec::with_capacity(pods);
    let mut before = BTreeMap::new();
    while times.len() < pods {
        let seen = times.len();
        waiting.until("DELETED").with_context(|| format!("{seen} of {pods} pods got a node"))?;
        times.push(Instant::now());
        if seen == 0 {
            before = cpu(plane)?;
        }
    }
    let after = cpu(plane)?;
    let count = f64::from(u32::try_from(pods - 1)?);
    let (first, last) = times.first().zip(times.last()).context("no pods")?;
    let per_second = count / last.duration_since(*first).as_secs_f64();
    let used = after.into_iter().map(|(name, cpu)| {
        let used = cpu - before.get(&name).copied().unwrap_or_default();
        (name, used / count)
    });
    Ok(Round { per_second, cpu: used.collect() })
}

/// CPU milliseconds of each program so far.
fn cpu(plane: &ControlPlane) -> Result<BTreeMap<String, f64>> {
    let of = |(name, pid): (&str, i32)| {
        let mut nanoseconds = 0.0;
        for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            // A thread may end meanwhile.
            let text = std::fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
            nanoseconds += text.split_whitespace().next().unwrap_or("0").parse::<f64>()?;
        }
        Ok((name.to_owned(), nanoseconds / 1_000_000.0))
    };
    plane.host().processes().map(of).collect()
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} pods/s; CPU ms per pod:", self.per_second)?;
        for (name, cpu) in &self.cpu {
            write!(f, " {name} {cpu:.2}")?;
        }
        Ok(())
    }
}
