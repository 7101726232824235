//! All three processes started at once on a cold node, until the kubelet has all units.

use std::time::Instant;

use anyhow::{Context as _, Result};
use mpshare_testkit::simnode::{NODE, Setup, SimNode};

use super::sample::Goal;
use crate::manifests;
use crate::story::PATIENCE;

/// A node with the document's configs and a label, and no product yet.
pub(super) async fn labelled_node(config: &str) -> Result<SimNode> {
    let node = SimNode::start(Setup::two_cards()).await?;
    manifests::apply(node.kube(), "tke/configmap.yaml").await?;
    node.kube().patch_node_label(NODE, "nvidia.com/device-plugin.config", config).await?;
    Ok(node)
}

pub(super) async fn measure(starts: usize) -> Result<Goal> {
    let mut values = Vec::new();
    for _ in 0..starts {
        let mut node = labelled_node("mps-2x").await?;
        let start = Instant::now();
        node.start_product()?;
        let list = node.kubelet().wait_allocatable("nvidia.com/gpu", 4, PATIENCE).await?;
        let list = list.context("units without a device list")?;
        values.push(list.at.duration_since(start).as_secs_f64() * 1000.0);
    }
    // Both of the peer's processes started together: 30.08 s in 5 of 5 runs.
    Ok(Goal::of("cold start of all three -> kubelet has the units", "ms", values)
        .below(300.0)
        .peer(30_080.0))
}
