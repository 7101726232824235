//! Evictions of the pods that hold shares, a round at a time.
//!
//! By the Eviction API, so that disruption budgets hold; a pod that one of them holds back is
//! tried again in the next round.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod as ApiPod;
use kube::Api;
use kube::api::{DeleteParams, EvictParams, Preconditions};

use super::holders::{Holder, Standing, holders};
use super::target::Cards;
use super::{DrainError, say, warn};
use crate::cluster::Cluster;
use crate::objects::{self, Node};

/// What was done and said so far.
pub(crate) struct Evictions<'a> {
    cluster: &'a Cluster,
    node: &'a str,
    cards: &'a Cards,
    said: BTreeSet<String>,
}

impl<'a> Evictions<'a> {
    pub(crate) fn new(cluster: &'a Cluster, node: &'a str, cards: &'a Cards) -> Self {
        Self { cluster, node, cards, said: BTreeSet::new() }
    }

    /// Says what a round would do.
    pub(crate) async fn rehearse(&mut self, node: &Node) -> Result<(), DrainError> {
        let holders = self.holders(node).await?;
        for holder in &holders {
            match holder.standing {
                Standing::Evictable => say(&format!("pod `{holder}` would be evicted"))?,
                Standing::Ending => say(&format!("pod `{holder}` is ending already"))?,
                standing => self.leave(holder, standing),
            }
        }
        if holders.is_empty() {
            say("no pod holds a share of it")?;
        }
        Ok(())
    }

    /// Evicts whom it can; what it can't is said once.
    pub(crate) async fn round(&mut self, node: &Node) -> Result<(), DrainError> {
        for holder in self.holders(node).await? {
            match holder.standing {
                Standing::Evictable => self.evict(&holder).await?,
                Standing::Ending => {}
                standing => self.leave(&holder, standing),
            }
        }
        Ok(())
    }

    async fn holders(&self, node: &Node) -> Result<Vec<Holder>, DrainError> {
        let pods = objects::pods_on(&self.cluster.client, self.node).await;
        let pods = pods.map_err(|error| self.cluster.explain("list", "pods", error))?;
        Ok(holders(node, &pods, self.cards))
    }

    async fn evict(&mut self, holder: &Holder) -> Result<(), DrainError> {
        // A pod that has the name by now is another one.
        let preconditions = Preconditions { uid: Some(holder.uid.clone()), resource_version: None };
        let delete_options =
            Some(DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() });
        let params = EvictParams { delete_options, ..EvictParams::default() };
        let pods = Api::<ApiPod>::namespaced(self.cluster.hasty.clone(), &holder.namespace);
        match pods.evict(&holder.name, &params).await {
            Ok(_) => say(&format!("pod `{holder}` evicted")),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 429 => {
                self.complain(&format!("pod `{holder}` can't be evicted yet: {}", status.message));
                Ok(())
            }
            Err(error) => Err(self.cluster.explain("create", "pods/eviction", error).into()),
        }
    }

    fn leave(&mut self, holder: &Holder, standing: Standing) {
        let why = standing.objection().unwrap_or_default();
        self.complain(&format!("pod `{holder}` isn't evicted: {why}"));
    }

    fn complain(&mut self, line: &str) {
        if self.said.insert(line.to_owned()) {
            warn(line);
        }
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
