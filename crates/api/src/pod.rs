//! The few fields of a pod that say what it asks of GPUs and whether it still holds it.
//!
//! A pod comes in a scheduler's call, from a watch or from a GET; all of them are read by these
//! types, which take `null` where Go writes it.

use std::collections::BTreeMap;

use mpshare_core::ledger::{Demand, NodeName, PodFacts, PodUid, Stage, Wish};
use serde::{Deserialize, Deserializer, Serialize};

use crate::names::{ALLOCATION, GPU_COUNT, GPU_RESOURCE, MEMORY_RESOURCE, V1_ASSIGNED};
use crate::pod_allocation::claim;

/// The resources that are ours to place.
pub(crate) const OURS: [&str; 2] = [MEMORY_RESOURCE, GPU_RESOURCE];

/// A pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// Who it is.
    #[serde(deserialize_with = "nullable")]
    pub metadata: PodMetadata,
    /// What it asks for.
    #[serde(deserialize_with = "nullable")]
    pub spec: PodSpec,
    /// How far it is.
    #[serde(deserialize_with = "nullable")]
    pub status: PodStatus,
}

/// Who a pod is.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodMetadata {
    /// Name.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// Namespace.
    #[serde(deserialize_with = "nullable")]
    pub namespace: String,
    /// UID.
    #[serde(deserialize_with = "nullable")]
    pub uid: String,
    /// Labels.
    #[serde(deserialize_with = "nullable")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(deserialize_with = "nullable")]
    pub annotations: BTreeMap<String, String>,
    /// Present once it is being deleted.
    pub deletion_timestamp: Option<String>,
}

/// What a pod asks for.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    /// The node that it is bound to.
    pub node_name: Option<String>,
    /// Init containers and sidecars.
    #[serde(deserialize_with = "nullable")]
    pub init_containers: Vec<Container>,
    /// Containers.
    #[serde(deserialize_with = "nullable")]
    pub containers: Vec<Container>,
}

/// A container.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    /// Name.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// `Always` makes an init container a sidecar.
    pub restart_policy: Option<String>,
    /// Resources.
    #[serde(deserialize_with = "nullable")]
    pub resources: Resources,
}

/// A container's resources.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// Limits, which for extended resources equal the requests.
    #[serde(deserialize_with = "nullable")]
    pub limits: BTreeMap<String, serde_json::Value>,
    /// Requests.
    #[serde(deserialize_with = "nullable")]
    pub requests: BTreeMap<String, serde_json::Value>,
}

/// How far a pod is.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PodStatus {
    /// `Succeeded` and `Failed` are final.
    #[serde(deserialize_with = "nullable")]
    pub phase: String,
}

impl Pod {
    /// What it asks of GPUs.
    pub fn demand(&self) -> Demand {
        demand(&self.spec, &self.metadata.labels)
    }

    /// What the ledger has to know of it; `None` when it asks nothing of GPUs or holds nothing.
    pub fn facts(&self) -> Option<PodFacts> {
        let demand = self.demand();
        if demand.is_empty() || self.status.has_ended() {
            return None;
        }
        let node = self.spec.node_name.clone().filter(|name| !name.is_empty());
        Some(PodFacts {
            uid: PodUid(self.metadata.uid.clone()),
            namespace: self.metadata.namespace.clone(),
            name: self.metadata.name.clone(),
            node: node.map(NodeName),
            demand,
            claim: claim(self.metadata.annotations.get(ALLOCATION).map(String::as_str)),
            // Who plans a place writes `false` beside it.
            is_confirmed: self
                .metadata
                .annotations
                .get(V1_ASSIGNED)
                .is_none_or(|text| text != "false"),
        })
    }
}

impl PodStatus {
    /// Whether the pod holds nothing any more. A deleted pod holds its units until then: the
    /// kubelet gives them to nobody before it has told this phase (facts/kubernetes.md 9).
    pub fn has_ended(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }
}

fn demand(spec: &PodSpec, labels: &BTreeMap<String, String>) -> Demand {
    let init = spec.init_containers.iter().enumerate().map(|(position, container)| {
        let is_sidecar = container.restart_policy.as_deref() == Some("Always");
        (position, container, if is_sidecar { Stage::Sidecar } else { Stage::Init })
    });
    let main = spec.containers.iter().enumerate();
    let main = main.map(|(position, container)| (position, container, Stage::Main));
    let wishes = init.chain(main).flat_map(|(position, container, stage)| {
        OURS.into_iter().filter_map(move |resource| {
            Some(Wish {
                container: container.name.clone(),
                position,
                stage,
                resource: resource.parse().ok()?,
                units: container.resources.amount(resource)?,
            })
        })
    });
    Demand::new(wishes.collect()).with_gpu_count(labels.get(GPU_COUNT).cloned())
}

impl Resources {
    /// The units of a resource.
    pub(crate) fn amount(&self, resource: &str) -> Option<u64> {
        Some(match self.of(resource)? {
            serde_json::Value::String(text) => units(text),
            other => other.as_u64().unwrap_or(u64::MAX),
        })
    }

    /// The same as it is written.
    pub(crate) fn text(&self, resource: &str) -> Option<String> {
        Some(match self.of(resource)? {
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        })
    }

    fn of(&self, resource: &str) -> Option<&serde_json::Value> {
        self.limits.get(resource).or_else(|| self.requests.get(resource))
    }
}

/// A quantity as the API server writes a whole one; suffixes are plain factors, so that `10G` is
/// ten milliards of units (facts/kubernetes.md 7). What can't be read is more than there can be.
fn units(text: &str) -> u64 {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let number: Option<u64> = digits.parse().ok();
    let factor = match suffix {
        "" => Some(1),
        "k" => Some(1000),
        "M" => Some(1_000_000),
        "G" => Some(1_000_000_000),
        "T" => Some(1_000_000_000_000),
        "Ki" => Some(1 << 10),
        "Mi" => Some(1 << 20),
        "Gi" => Some(1 << 30),
        "Ti" => Some(1 << 40),
        "m" => return number.map_or(u64::MAX, |milli| milli.div_ceil(1000)),
        _ => None::<u64>,
    };
    number.zip(factor).map_or(u64::MAX, |(number, factor)| number.saturating_mul(factor))
}

/// A value that may be `null`, which Go writes for what is empty.
pub(crate) fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn pod(value: serde_json::Value) -> Pod {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn quantities_are_whole_and_anything_else_is_too_much() {
        for (text, amount) in [
            ("7", 7),
            ("10G", 10_000_000_000),
            ("1Ki", 1024),
            ("2000m", 2),
            ("0", 0),
            ("1e3", u64::MAX),
            ("", u64::MAX),
            ("-1", u64::MAX),
            ("99999999999999999999", u64::MAX),
        ] {
            assert_eq!(units(text), amount, "{text}");
        }
    }

    #[test]
    fn every_kind_of_container_counts_in_the_order_of_start() {
        let limit = |n: u64| json!({"limits": {"aliyun.com/gpu-mem": n.to_string()}});
        let pod = pod(json!({"metadata": {"creationTimestamp": null, "labels": null}, "spec": {
            "initContainers": [
                {"name": "i", "resources": limit(4)},
                {"name": "s", "restartPolicy": "Always", "resources": limit(2)},
            ],
            "containers": [{"name": "a", "resources": limit(3)}, {"name": "b", "resources": {}}],
        }}));
        let demand = pod.demand();
        let stages: Vec<_> =
            demand.wishes().iter().map(|wish| (wish.container.as_str(), wish.stage)).collect();
        assert_eq!(stages, [("i", Stage::Init), ("s", Stage::Sidecar), ("a", Stage::Main)]);
        assert_eq!(demand.peak(), 5);
    }

    #[test]
    fn a_pod_counts_until_its_phase_is_final() {
        let with = |phase: &str| {
            pod(json!({
                "metadata": {"uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"},
                "spec": {"nodeName": "n", "containers": [
                    {"name": "c", "resources": {"limits": {"aliyun.com/gpu-mem": 1}}},
                ]},
                "status": {"phase": phase},
            }))
            .facts()
        };
        assert!(with("Running").is_some());
        assert!(with("Failed").is_none() && with("Succeeded").is_none());
    }

    proptest! {
        #[test]
        fn what_begins_with_no_digit_is_too_much(text in ".*") {
            let is_number = text.starts_with(|c: char| c.is_ascii_digit());
            prop_assert!(units(&text) == u64::MAX || is_number);
        }
    }
}
