//! `cargo xtask bench extender --cluster`: how many pods per second a real kube-scheduler binds with
//! our extender, and without any.
//!
//! etcd, API server and scheduler are real; nodes exist as objects only. Both ways alternate on one
//! control plane, so that what else the machine does falls on both; the ratio of each pair counts.
//! Without the extender the scheduler itself counts the same resource, per node.

mod objects;
mod requests;
mod round;
mod waiting;

use std::fmt;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::cluster::{ControlPlane, Parts};
use objects::Size;
use requests::Requests;
use round::{Round, Way};

/// The least part of the scheduler's own rate.
const GOAL: f64 = 0.8;

/// What is measured, and with what.
#[derive(Debug, Clone)]
pub struct Options {
    /// The directory of Kubernetes' programs.
    pub programs: PathBuf,
    /// The directory of our extender.
    pub built: PathBuf,
    /// Where logs go.
    pub logs: PathBuf,
    /// How many nodes, each with 8 GPUs; one cluster after the other.
    pub nodes: Vec<usize>,
    /// How many pods.
    pub pods: usize,
    /// How often each way, in turn.
    pub rounds: usize,
}

/// What was seen in clusters of one size.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Nodes, each with 8 GPUs.
    pub nodes: usize,
    /// Pods.
    pub pods: usize,
    /// Each pair of rounds, in order: without the extender, with it.
    pub pairs: Vec<(Round, Round)>,
    /// The middle one of the pairs' ratios: rate with the extender / without.
    pub ratio: f64,
    /// The least that it should be.
    pub goal: f64,
}

impl Report {
    /// Whether the goal was reached.
    pub fn is_met(&self) -> bool {
        self.ratio >= self.goal
    }
}

/// Measures clusters of all sizes.
pub fn run(options: &Options, tell: impl Fn(&str)) -> Result<Vec<Report>> {
    std::fs::create_dir_all(&options.logs)?;
    options.nodes.iter().map(|nodes| measure(options, *nodes, &tell)).collect()
}

fn measure(options: &Options, nodes: usize, tell: &impl Fn(&str)) -> Result<Report> {
    let dir = tempfile::Builder::new().prefix("mpshare-bench-").tempdir()?;
    let parts = Parts {
        programs: options.programs.clone(),
        simulator: options.built.clone(),
        images: Vec::new(),
        logs: options.logs.clone(),
    };
    let mut plane = ControlPlane::start_bare(&parts, dir.path())?;
    let size = Size { nodes, pods: options.pods };
    Requests::of(&plane).create(&size.before())?;
    let mut pairs = Vec::new();
    // The first round of a fresh API server is slower than all others.
    Round::run(&mut plane, size, Way::Alone).context("the round before the first")?;
    for _ in 0..options.rounds {
        let mut round = |way| {
            let round = Round::run(&mut plane, size, way)
                .with_context(|| format!("{nodes} nodes, {way}"))?;
            tell(&format!("{nodes} nodes, {way}: {round}"));
            anyhow::Ok(round)
        };
        pairs.push((round(Way::Alone)?, round(Way::WithExtender)?));
    }
    let mut ratios: Vec<f64> =
        pairs.iter().map(|(alone, with)| with.per_second / alone.per_second).collect();
    ratios.sort_by(f64::total_cmp);
    let ratio = *ratios.get(ratios.len() / 2).context("no rounds")?;
    Ok(Report { nodes, pods: options.pods, pairs, ratio, goal: GOAL })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.is_met() { "met   " } else { "MISSED" };
        let Self { nodes, pods, ratio, goal, .. } = self;
        write!(
            f,
            "{verdict} {pods} pods onto {nodes} x 8 GPUs: {ratio:.2} of the rate without extender; goal >= {goal}"
        )
    }
}
