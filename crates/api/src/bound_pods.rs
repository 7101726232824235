//! `bound-pods.json`: what the API says of the node's pods that ask for units: how many each
//! container wants, and which card a scheduler has planned for it.
//!
//! Written by config-manager, the one role that talks to the API, whenever that changes; read by
//! the device plugin, which steers by it, and by the supervisor, which looks after those that end. It is made anew from the API at any time, so that it is
//! written without waiting for the disk.

use mpshare_core::ledger::{Claim, PodFacts};
use serde::{Deserialize, Serialize};

/// All of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundPods {
    /// Format of this document.
    pub version: u32,
    /// In the order of their creation, which is the one in which a kubelet that starts admits them
    /// (facts/kubernetes.md 1.8).
    pub pods: Vec<BoundPod>,
}

/// A pod that is bound to the node and hasn't ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundPod {
    /// UID.
    pub uid: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Its containers that ask for units, in the order of their start.
    pub containers: Vec<BoundContainer>,
    /// There once it is being deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<PodEnding>,
}

/// A pod that is being deleted: the kubelet asks its processes to end, and kills them when the grace
/// period is over. The API says when that is by its own clock, so only its length counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodEnding {
    /// The grace period; 0 where the pod is killed at once.
    pub grace_seconds: u64,
}

/// A container that asks for units.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundContainer {
    /// Name.
    pub name: String,
    /// The resource.
    pub resource: String,
    /// How many units.
    pub units: u64,
    /// UUID of the card that was planned for all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
}

impl crate::Versioned for BoundPods {
    const VERSION: u32 = Self::VERSION;

    fn version(&self) -> u32 {
        self.version
    }
}

impl BoundPods {
    /// The format that this program writes.
    pub const VERSION: u32 = 1;

    /// The document about these pods.
    pub fn of(pods: &[PodFacts]) -> Self {
        Self { version: Self::VERSION, pods: pods.iter().map(BoundPod::of).collect() }
    }
}

impl Default for BoundPods {
    fn default() -> Self {
        Self::of(&[])
    }
}

impl BoundPod {
    fn of(facts: &PodFacts) -> Self {
        let containers = facts.demand.wishes().iter().map(|wish| BoundContainer {
            name: wish.container.clone(),
            resource: wish.resource.to_string(),
            units: wish.units,
            gpu: planned_card(&facts.claim, &wish.container, wish.units),
        });
        Self {
            uid: facts.uid.to_string(),
            namespace: facts.namespace.clone(),
            name: facts.name.clone(),
            containers: containers.collect(),
            ending: None,
        }
    }
}

/// The card on which a claim places all units of a container.
fn planned_card(claim: &Claim, container: &str, units: u64) -> Option<String> {
    let Claim::Of(allocation) = claim else { return None };
    let gpus = allocation.0.get(container)?;
    gpus.iter().find(|(_, here)| **here == units).map(|(gpu, _)| gpu.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::Pod;
    use serde_json::json;

    fn bound(allocation: &str) -> BoundPods {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"uid": "u", "namespace": "ns", "name": "n",
                         "annotations": {"mpshare.io/allocation": allocation}},
            "spec": {"nodeName": "here", "containers": [
                {"name": "a", "resources": {"limits": {"aliyun.com/gpu-mem": "7"}}},
                {"name": "b", "resources": {}},
            ]},
        }))
        .unwrap();
        BoundPods::of(&[pod.facts().unwrap()])
    }

    #[test]
    fn a_container_is_planned_on_the_card_that_has_all_of_its_units() {
        let written = serde_json::to_value(bound(r#"{"a":{"GPU-ab":7}}"#)).unwrap();
        assert_eq!(
            written,
            json!({"version": 1, "pods": [{"uid": "u", "namespace": "ns", "name": "n", "containers":
                [{"name": "a", "resource": "aliyun.com/gpu-mem", "units": 7, "gpu": "GPU-ab"}]}]})
        );
    }

    #[test]
    fn a_claim_of_another_amount_or_of_nothing_plans_nothing() {
        for claim in [r#"{"a":{"GPU-ab":8}}"#, r#"{"b":{"GPU-ab":7}}"#, "garbage", "{}"] {
            assert_eq!(bound(claim).pods[0].containers[0].gpu, None, "{claim}");
        }
    }
}
