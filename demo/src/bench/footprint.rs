//! Memory and CPU of the three processes on an idle node.

use std::time::Duration;

use anyhow::{Context as _, Result};
use mpshare_testkit::simnode::{Role, SimNode};

use super::process;
use super::sample::Goal;
use super::start::labelled_node;
use crate::story::PATIENCE;

/// RSS of the peer's three processes in MiB: plugin, MPS daemon, config-manager.
const PEER_RSS: [(Role, f64); 3] =
    [(Role::DevicePlugin, 20.4), (Role::Supervisor, 16.9), (Role::ConfigManager, 29.0)];

pub(super) async fn measure(idle_seconds: u64) -> Result<Vec<Goal>> {
    let mut node = labelled_node("mps-2x").await?;
    node.start_product()?;
    node.kubelet().wait_allocatable("nvidia.com/gpu", 4, PATIENCE).await?;
    // What start-up leaves to be done.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = PEER_RSS.map(|(role, _)| cpu(&node, role));
    tokio::time::sleep(Duration::from_secs(idle_seconds)).await;
    let mut goals = Vec::new();
    let (mut sum, mut peers) = (0.0, 0.0);
    for ((role, peer), before) in PEER_RSS.into_iter().zip(before) {
        let rss = rss(&node, role)?;
        sum += rss;
        peers += peer;
        let used = (cpu(&node, role)? - before?) / f64::from(u32::try_from(idle_seconds)?) * 60.0;
        goals.push(Goal::of(format!("{role}: RSS"), "MiB", vec![rss]).peer(peer));
        goals.push(Goal::of(format!("{role}: idle CPU"), "ms/min", vec![used]).below(20.0));
    }
    goals.push(Goal::of("all three: RSS", "MiB", vec![sum]).below(22.0).peer(peers));
    Ok(goals)
}

fn rss(node: &SimNode, role: Role) -> Result<f64> {
    process::rss(node.role_pid(role).context("not running")?)
}

fn cpu(node: &SimNode, role: Role) -> Result<f64> {
    process::cpu(node.role_pid(role).context("not running")?)
}
