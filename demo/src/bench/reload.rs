//! A label change on idle cards, until the limits are changed and verified and the kubelet has the
//! new list.

use std::time::Instant;

use anyhow::{Context as _, Result};
use mpshare_testkit::simnode::{NODE, SimNode};

use super::sample::Goal;
use super::start::labelled_node;
use crate::story::PATIENCE;

pub(super) async fn measure(changes: usize) -> Result<[Goal; 2]> {
    let mut node = labelled_node("mps-4x").await?;
    node.start_product()?;
    node.kubelet().wait_allocatable("nvidia.com/gpu", 8, PATIENCE).await?;
    let (mut told, mut not_followed) = (Vec::new(), 0_u32);
    for change in 0..changes {
        let (config, units, limit) =
            if change % 2 == 0 { ("mps-2x", 4, 7680) } else { ("mps-4x", 8, 3840) };
        let start = Instant::now();
        node.kube().patch_node_label(NODE, "nvidia.com/device-plugin.config", config).await?;
        let list = node.kubelet().wait_allocatable("nvidia.com/gpu", units, PATIENCE).await?;
        let list = list.context("units without a device list")?;
        // Units that a coarser cut takes away go at once; what it offers waits for the limits.
        while verified(&node) != Some(limit) && start.elapsed() < PATIENCE {
            tokio::task::yield_now().await;
        }
        not_followed += u32::from(verified(&node) != Some(limit));
        let took = start.elapsed().max(list.at.duration_since(start));
        told.push(took.as_secs_f64() * 1000.0);
    }
    Ok([
        Goal::of("label change -> limits verified, kubelet told", "ms", told).at(0.99).below(150.0),
        Goal::of(
            "label changes that the daemon's limits didn't follow",
            "changes",
            vec![not_followed.into()],
        )
        .below(1.0)
        .peer(5.0),
    ])
}

/// The first card's limit as the supervisor read it back.
fn verified(node: &SimNode) -> Option<u64> {
    Some(node.status()?.gpus.first()?.daemon.as_ref()?.limits?.memory_mib)
}
