//! Random nodes, and where a pod may go among them, by its JSON alone.

use std::collections::BTreeMap;

use mpshare_api::inventory_annotation::fleet_node;
use mpshare_core::admission::{Fleet, Policy, Privileged};
use mpshare_core::ledger::NodeName;
use mpshare_core::{Memory, ThreadPercent};
use serde_json::{Value, json};

pub(super) const MEMORY: &str = "aliyun.com/gpu-mem";
pub(super) const GPU: &str = "nvidia.com/gpu";

/// Where NVIDIA's container runtime looks for cards that are named by mounts.
const VOLUME_MOUNTS: &str = "/var/run/nvidia-container-devices";

pub(super) struct Card {
    pub(super) uuid: String,
    pub(super) resource: &'static str,
    pub(super) units: u64,
    unit: Memory,
}

pub(super) struct Node {
    pub(super) cards: Vec<Card>,
    name: String,
    labels: BTreeMap<String, String>,
}

/// A cluster and its policy.
pub(super) struct Cluster {
    pub(super) nodes: Vec<Node>,
    pub(super) fleet: Fleet,
    pub(super) policy: Policy,
}

impl Card {
    fn random(rng: &mut fastrand::Rng, node: usize, index: usize) -> Self {
        let uuid = format!("GPU-{node}{index}aa");
        let total = 8192 * rng.u64(1..=10);
        let (resource, unit, units) = match rng.u8(0..5) {
            0 | 1 => {
                let unit = [256, 1024, 2048][rng.usize(0..3)];
                (MEMORY, unit, total / unit - rng.u64(0..2))
            }
            2 | 3 => {
                let units = rng.u64(2..=8);
                (GPU, total / units, units)
            }
            _ => (GPU, total, 1),
        };
        Self { uuid, resource, units, unit: Memory::from_mib(unit) }
    }

    pub(super) fn is_shared(&self) -> bool {
        self.units > 1
    }

    pub(super) fn memory(&self, units: u64) -> Memory {
        self.unit.times(units)
    }

    pub(super) fn percent(&self, units: u64) -> ThreadPercent {
        let parts = if self.resource == MEMORY { 1 } else { u32::try_from(self.units).unwrap() };
        ThreadPercent::FULL.split(parts).times(u32::try_from(units).unwrap())
    }

    fn annotation(&self, index: usize) -> Value {
        json!({
            "uuid": self.uuid, "index": index, "model": "Tesla V100",
            "memoryMiB": self.memory(self.units).mib(), "unitMiB": self.unit.mib(),
            "units": self.units, "state": "Ready", "resource": self.resource,
            "driver": "570.86.15",
        })
    }
}

impl Cluster {
    pub(super) fn random(rng: &mut fastrand::Rng) -> Self {
        let nodes: Vec<Node> = (0..rng.usize(1..=4)).map(|n| Node::random(rng, n)).collect();
        let mut fleet = Fleet::default();
        for node in &nodes {
            // Nodes tell of shared cards only.
            let cards = node.cards.iter().filter(|card| card.is_shared()).enumerate();
            let cards: Vec<Value> = cards.map(|(index, it)| it.annotation(index)).collect();
            let shared = cards.len();
            let text = Value::Array(cards).to_string();
            let annotations = [("mpshare.io/gpus".to_owned(), text)].into();
            let known = fleet_node(&annotations, &node.labels);
            assert_eq!(known.cards.len(), shared);
            fleet.set(&NodeName(node.name.clone()), known);
        }
        // By the environment, by mounts, by CDI.
        let visible = [None, Some(VOLUME_MOUNTS.to_owned()), Some("void".to_owned())];
        let policy = Policy {
            scheduler_name: rng.bool().then(|| "gpu".to_owned()),
            cap_percent: rng.bool(),
            privileged: [Privileged::Allowed, Privileged::WithUnits, Privileged::All]
                [rng.usize(0..3)],
            own_paths: rng.bool().then(|| "/opt/driver".to_owned()).into_iter().collect(),
            visible_devices: visible[rng.usize(0..3)].clone(),
        };
        Self { nodes, fleet, policy }
    }
}

impl Node {
    fn random(rng: &mut fastrand::Rng, number: usize) -> Self {
        let name = format!("n{number}");
        let pool = ["a", "b"][rng.usize(0..2)];
        let labels = [("pool", pool), ("host", &name), ("size", &rng.u8(0..9).to_string())]
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        let cards = (0..rng.usize(1..=3)).map(|index| Card::random(rng, number, index)).collect();
        Self { cards, name, labels: labels.into() }
    }

    /// What kube-scheduler and the kubelet think.
    pub(super) fn takes(&self, pod: &Value) -> bool {
        let spec = &pod["spec"];
        if let Some(name) = spec["nodeName"].as_str().filter(|name| !name.is_empty()) {
            return name == self.name;
        }
        let selector = spec["nodeSelector"].as_object();
        let is_selected = selector
            .into_iter()
            .flatten()
            .all(|(key, value)| self.labels.get(key).map(String::as_str) == value.as_str());
        let terms = spec
            .pointer("/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution")
            .and_then(|required| required["nodeSelectorTerms"].as_array());
        is_selected && terms.is_none_or(|terms| terms.iter().any(|term| self.meets(term)))
    }

    fn meets(&self, term: &Value) -> bool {
        let list = |key: &str| term[key].as_array().cloned().unwrap_or_default();
        let (labels, fields) = (list("matchExpressions"), list("matchFields"));
        let name = |_: &str| Some(self.name.as_str());
        let label = |key: &str| self.labels.get(key).map(String::as_str);
        !(labels.is_empty() && fields.is_empty())
            && labels.iter().all(|it| is_met(it, label(it["key"].as_str().unwrap())))
            && fields.iter().all(|it| is_met(it, name(it["key"].as_str().unwrap())))
    }
}

fn is_met(expression: &Value, value: Option<&str>) -> bool {
    let values = expression["values"].as_array().cloned().unwrap_or_default();
    let is_among = value.is_some_and(|value| values.iter().any(|it| it == value));
    let compares = |is_right: fn(&i64, &i64) -> bool| {
        let numbers = value.and_then(|it| it.parse().ok()).zip(values[0].as_str()?.parse().ok());
        numbers.map(|(value, bound)| is_right(&value, &bound))
    };
    match expression["operator"].as_str().unwrap() {
        "In" => is_among,
        "NotIn" => !is_among,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compares(i64::gt).unwrap_or(false),
        "Lt" => compares(i64::lt).unwrap_or(false),
        other => panic!("{other}"),
    }
}
