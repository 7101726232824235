//! The end of a round: everything that was broken is mended, and the node has to come to rest.

use std::time::Duration;

use anyhow::{Result, ensure};
use mpshare_api::GpuState;

use super::Campaign;
use super::action::{Cut, Load};
use super::loads::CONTAINER;
use super::scene::{GPU, label, wait};
use super::usage::Resting;
use crate::simnode::Role;

/// How long it may take until everything is as it should be.
const PATIENCE: Duration = Duration::from_secs(90);

/// The config in which the node rests.
const AT_REST: Cut = Cut::Replicas(2);

impl Campaign {
    /// Mends everything and waits.
    pub(super) async fn come_to_rest(&mut self) -> Result<Resting> {
        self.note("the end of all faults");
        self.end_until(usize::MAX)?;
        self.node.kube().faults().clear();
        self.loads.clear(PATIENCE).await?;
        self.check()?;
        self.cut = AT_REST;
        label(&self.node, AT_REST).await?;
        self.all_units_are_offered().await?;
        self.pods_run().await?;
        self.nothing_is_left().await?;
        self.check()?;
        Resting::measure(&self.node)
    }

    pub(super) async fn all_units_are_offered(&mut self) -> Result<()> {
        let cards = self.node.cards().len();
        let is_whole = || {
            let ready = self.node.status().is_some_and(|status| {
                status.gpus.len() == cards
                    && status
                        .gpus
                        .iter()
                        .all(|gpu| gpu.state == GpuState::Ready && gpu.generation.contains("/2x"))
            });
            ready && self.node.kubelet().allocatable(GPU) == 2 * cards
        };
        wait("all cards offer all units", PATIENCE, || Ok(is_whole())).await
    }

    /// One on each unit.
    async fn pods_run(&mut self) -> Result<()> {
        let units = 2 * self.node.cards().len();
        for _ in 0..units {
            self.loads.add(&self.node, self.cut, Load::Small { units: 1 })?;
        }
        let pods = &self.loads.pods;
        let run = || Ok(pods.iter().all(|it| it.pod.log(CONTAINER).contains("holding")));
        let waited = wait("a pod runs on each unit", PATIENCE, run).await;
        if let Err(error) = waited {
            let statuses: Vec<_> = pods.iter().map(|it| it.pod.status()).collect();
            return Err(error.context(format!("{statuses:#?}")));
        }
        ensure!(pods.len() == units, "{} pods on {units} units", pods.len());
        self.check()?;
        self.loads.clear(PATIENCE).await
    }

    /// No process but the product's own and NVIDIA's: a daemon and a server for each card.
    async fn nothing_is_left(&mut self) -> Result<()> {
        let expected = Role::ALL.len() + 2 * self.node.cards().len();
        let is_clean = || Ok(self.node.processes().len() == expected);
        let waited = wait("no process is left over", PATIENCE, is_clean).await;
        if let Err(error) = waited {
            let command = |pid: &i32| {
                let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                format!("{pid} {}", String::from_utf8_lossy(&words).replace('\0', " "))
            };
            let left: Vec<String> = self.node.processes().iter().map(command).collect();
            return Err(error.context(format!("{expected} expected, there are {left:#?}")));
        }
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
        let root = self.node.path().display().to_string();
        ensure!(!mounts.contains(&root), "something is mounted below `{root}`");
        Ok(())
    }
}
