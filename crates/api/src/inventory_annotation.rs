//! The node annotation [`NODE_GPUS`]: the cards of a node, as the node
//! itself publishes them for schedulers and for people.
//!
//! Unknown keys are ignored; a key of the wrong type is an error that names the key. The cards are
//! in index order.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use mpshare_core::admission::{FleetCard, FleetNode};
use mpshare_core::ledger::{Card, NodeFacts};
use mpshare_core::placement::Policy;
use mpshare_core::{
    ComputeCapability, DriverVersion, GpuUuid, Memory, ThreadPercent, VersionProfile,
};
use serde::Serialize;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::names::{MAX_POD_LABEL, MEMORY_RESOURCE, NODE_GPUS, PLACEMENT_LABEL};

/// More cards than any machine has; what lists more is no inventory.
const MOST_CARDS: usize = 1024;

/// The clients of a card about which neither capability nor driver is known: memory units exist
/// only from Volta on, and 48 is the cap of the oldest driver there (facts/mps.md 3).
const USUAL_CLIENT_CAP: u32 = 48;

/// The state of a card on which shares can be placed.
const READY: &str = "Ready";

/// All cards of a node in index order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct NodeGpus(pub Vec<NodeGpu>);

/// One card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeGpu {
    /// Identity.
    pub uuid: String,
    /// NVML's index.
    pub index: u32,
    /// Product name.
    pub model: String,
    /// Total memory in MiB.
    #[serde(rename = "memoryMiB")]
    pub memory_mib: u64,
    /// The memory of one unit in MiB.
    #[serde(rename = "unitMiB")]
    pub unit_mib: u64,
    /// How many units are offered.
    pub units: u64,
    /// `Ready`, or another state in which nothing is to be placed.
    pub state: String,
    /// The resource of the units; absent means `aliyun.com/gpu-mem`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The code of the reason why it isn't ready, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason_code: Option<String>,
    /// Why it isn't ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How many units the kubelet has given to pods that are there. It changes whenever a pod comes
    /// or goes, which is what makes kube-scheduler try again what had no room.
    #[serde(default, rename = "heldUnits", skip_serializing_if = "Option::is_none")]
    pub held_units: Option<u64>,
    /// The memory that processes use, in MiB.
    #[serde(default, rename = "usedMiB", skip_serializing_if = "Option::is_none")]
    pub used_mib: Option<u64>,
    /// What of that is used by processes that have no share of the card, in MiB; absent for nothing.
    #[serde(default, rename = "outsideMiB", skip_serializing_if = "Option::is_none")]
    pub outside_mib: Option<u64>,
    /// CUDA compute capability, such as `7.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_capability: Option<String>,
    /// Version of the driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
}

/// Why an annotation isn't an inventory.
#[derive(Debug, Error)]
pub enum InventoryError {
    /// No JSON.
    #[error("the GPU inventory is no JSON")]
    Json(#[from] serde_json::Error),
    /// Not an array of objects.
    #[error("the GPU inventory is no array of objects")]
    Form,
    /// More cards than can be.
    #[error("the GPU inventory lists {0} cards")]
    TooMany(usize),
    /// A key that is absent, of the wrong type or out of range.
    #[error("`{key}` of card {position} of the GPU inventory is {problem}")]
    Key {
        /// The position in the array.
        position: usize,
        /// The key.
        key: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Two cards with one identity.
    #[error("the GPU inventory lists `{0}` twice")]
    Twice(String),
}

impl NodeGpus {
    /// The annotation's text.
    pub fn to_annotation(&self) -> String {
        serde_json::to_value(self).map(|value| value.to_string()).unwrap_or_default()
    }

    /// The cards as the ledger counts them.
    pub fn cards(&self) -> Vec<Card> {
        self.0.iter().filter_map(NodeGpu::card).collect()
    }
}

impl FromStr for NodeGpus {
    type Err = InventoryError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let value: Value = serde_json::from_str(text)?;
        let list = value.as_array().ok_or(InventoryError::Form)?;
        if list.len() > MOST_CARDS {
            return Err(InventoryError::TooMany(list.len()));
        }
        let mut gpus = Vec::with_capacity(list.len());
        let mut known = BTreeSet::new();
        for (position, value) in list.iter().enumerate() {
            let keys = Keys { position, map: value.as_object().ok_or(InventoryError::Form)? };
            let gpu = keys.gpu()?;
            if !known.insert(gpu.uuid.clone()) || !known.insert(gpu.index.to_string()) {
                return Err(InventoryError::Twice(gpu.uuid));
            }
            gpus.push(gpu);
        }
        gpus.sort_by_key(|gpu| gpu.index);
        Ok(Self(gpus))
    }
}

/// What a node's annotations and labels say to the ledger. A node without the annotation has no
/// cards; one whose annotation can't be read has cards that aren't known.
pub fn node_facts(
    annotations: &BTreeMap<String, String>,
    labels: &BTreeMap<String, String>,
) -> NodeFacts {
    let cards = annotations.get(NODE_GPUS).map_or(Ok(Vec::new()), |text| {
        text.parse::<NodeGpus>().map(|gpus| gpus.cards()).map_err(|error| error.to_string())
    });
    NodeFacts {
        cards,
        policy: Policy::of_label(labels.get(PLACEMENT_LABEL).map(String::as_str)),
        max_pods: labels.get(MAX_POD_LABEL).and_then(|text| text.parse().ok()),
    }
}

/// What a node's annotations and labels say to admission.
pub fn fleet_node(
    annotations: &BTreeMap<String, String>,
    labels: &BTreeMap<String, String>,
) -> FleetNode {
    let gpus = annotations.get(NODE_GPUS).and_then(|text| text.parse::<NodeGpus>().ok());
    let cards = gpus.unwrap_or_default();
    FleetNode {
        labels: labels.clone(),
        cards: cards.0.iter().filter_map(NodeGpu::fleet_card).collect(),
    }
}

impl NodeGpu {
    /// Whether shares can be placed on the card.
    pub fn is_ready(&self) -> bool {
        self.state == READY
    }

    /// The resource of the card's units.
    pub fn resource(&self) -> &str {
        self.resource.as_deref().unwrap_or(MEMORY_RESOURCE)
    }

    /// How many client contexts the card takes.
    pub fn client_cap(&self) -> u32 {
        let profile = self.driver.as_deref().and_then(|text| text.parse::<DriverVersion>().ok());
        let profile = profile.as_ref().and_then(VersionProfile::of);
        match (profile, self.compute_capability.as_deref().and_then(capability)) {
            (Some(profile), Some(capability)) => profile.client_cap(capability),
            (None, Some(capability)) => VersionProfile::R535.client_cap(capability),
            (Some(_) | None, None) => USUAL_CLIENT_CAP,
        }
    }

    /// The card as admission knows it: with all the units that it is cut into, of which fewer may be
    /// offered while older shares live. One that has none isn't shared, nor is a whole one.
    fn fleet_card(&self) -> Option<FleetCard> {
        let is_part = self.unit_mib < self.memory_mib;
        let card = self.card().filter(|card| card.units > 0 && is_part)?;
        let units = card.units.max(Memory::from_mib(self.memory_mib).pieces_of(card.unit));
        let parts = u32::try_from(units).unwrap_or(u32::MAX);
        let is_memory = card.resource.domain() != "nvidia.com";
        Some(FleetCard {
            // Units of memory have all threads, as `core::plan` cuts them.
            percent: ThreadPercent::FULL.split(if is_memory { 1 } else { parts }),
            resource: card.resource,
            unit: card.unit,
            units,
            driver: self.driver.as_deref().and_then(|text| text.parse().ok()),
        })
    }

    /// The card as the ledger counts it; never more units than its memory has.
    fn card(&self) -> Option<Card> {
        let unit = Memory::from_mib(self.unit_mib);
        Some(Card {
            uuid: self.uuid.parse().ok()?,
            index: self.index,
            resource: self.resource().parse().ok()?,
            unit,
            units: self.units.min(Memory::from_mib(self.memory_mib).pieces_of(unit)),
            not_ready: (!self.is_ready()).then(|| self.state.clone()),
            client_cap: self.client_cap(),
            held: self.held_units,
            outside: Memory::from_mib(self.outside_mib.unwrap_or(0)),
            withheld: Memory::ZERO,
        })
    }
}

fn capability(text: &str) -> Option<ComputeCapability> {
    let (major, minor) = text.split_once('.')?;
    Some(ComputeCapability { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

/// The keys of one card.
struct Keys<'a> {
    position: usize,
    map: &'a Map<String, Value>,
}

impl Keys<'_> {
    fn gpu(&self) -> Result<NodeGpu, InventoryError> {
        let uuid = self.text("uuid")?;
        if uuid.parse::<GpuUuid>().is_err() {
            return Err(self.error("uuid", "no GPU UUID"));
        }
        let index = u32::try_from(self.number("index")?);
        let gpu = NodeGpu {
            uuid,
            index: index.map_err(|_| self.error("index", "too large"))?,
            model: self.text("model")?,
            memory_mib: self.number("memoryMiB")?,
            unit_mib: self.number("unitMiB")?,
            units: self.number("units")?,
            state: self.text("state")?,
            resource: self.optional("resource")?,
            reason_code: self.optional("reasonCode")?,
            reason: self.optional("reason")?,
            held_units: self.optional_number("heldUnits")?,
            used_mib: self.optional_number("usedMiB")?,
            outside_mib: self.optional_number("outsideMiB")?,
            compute_capability: self.optional("computeCapability")?,
            driver: self.optional("driver")?,
        };
        if gpu.unit_mib == 0 {
            return Err(self.error("unitMiB", "0"));
        }
        if gpu.resource().parse::<mpshare_core::ResourceName>().is_err() {
            return Err(self.error("resource", "no resource name"));
        }
        Ok(gpu)
    }

    fn number(&self, key: &'static str) -> Result<u64, InventoryError> {
        self.optional_number(key)?.ok_or_else(|| self.error(key, "absent"))
    }

    fn optional_number(&self, key: &'static str) -> Result<Option<u64>, InventoryError> {
        let value = self.map.get(key).filter(|value| !value.is_null());
        let number =
            |value: &Value| value.as_u64().ok_or_else(|| self.error(key, "no whole number"));
        value.map(number).transpose()
    }

    fn text(&self, key: &'static str) -> Result<String, InventoryError> {
        self.optional(key)?.ok_or_else(|| self.error(key, "absent"))
    }

    fn optional(&self, key: &'static str) -> Result<Option<String>, InventoryError> {
        match self.map.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(self.error(key, "no text")),
        }
    }

    fn error(&self, key: &'static str, problem: &'static str) -> InventoryError {
        InventoryError::Key { position: self.position, key, problem }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ONE: &str = r#"[{"uuid":"GPU-0a","index":0,"model":"Tesla V100-SXM2-16GB","memoryMiB":16384,"unitMiB":1024,"units":15,"state":"Ready"}]"#;

    fn error(from: &str, to: &str) -> String {
        ONE.replace(from, to).parse::<NodeGpus>().unwrap_err().to_string()
    }

    #[test]
    fn the_text_reads_back_and_unknown_keys_are_ignored() {
        let gpus: NodeGpus = ONE.parse().unwrap();
        assert_eq!(gpus.to_annotation().parse::<NodeGpus>().unwrap(), gpus);
        let more = ONE.replace("\"index\"", "\"colour\":{},\"index\"");
        assert_eq!(more.parse::<NodeGpus>().unwrap(), gpus);
    }

    #[test]
    fn a_whole_card_is_no_share_to_admission_and_a_drained_one_is_out_of_reach_to_schedulers() {
        let nodes = |text: &str| {
            let annotations = BTreeMap::from([(NODE_GPUS.to_owned(), text.to_owned())]);
            fleet_node(&annotations, &BTreeMap::new()).cards.len()
        };
        let whole = ONE.replace(":1024,", ":16384,").replace(":15,", ":1,");
        assert_eq!((nodes(ONE), nodes(&whole)), (1, 0));
        let drained = ONE.replace("\"Ready\"", "\"Draining\",\"reasonCode\":\"CardDrained\"");
        let gpus: NodeGpus = drained.parse().unwrap();
        assert_eq!(gpus.cards()[0].not_ready.as_deref(), Some("Draining"));
        assert_eq!(gpus.0[0].reason_code.as_deref(), Some("CardDrained"));
        assert_eq!(gpus.to_annotation().parse::<NodeGpus>().unwrap(), gpus);
    }

    #[test]
    fn what_is_wrong_is_named_by_its_key() {
        assert_eq!(
            error("15", "\"15\""),
            "`units` of card 0 of the GPU inventory is no whole number"
        );
        assert_eq!(error("1024", "0"), "`unitMiB` of card 0 of the GPU inventory is 0");
        assert_eq!(error("uuid", "id"), "`uuid` of card 0 of the GPU inventory is absent");
        assert_eq!(error("GPU-0a", "0"), "`uuid` of card 0 of the GPU inventory is no GPU UUID");
        assert_eq!(
            error(":0,", ":5000000000,"),
            "`index` of card 0 of the GPU inventory is too large"
        );
        let inner = ONE.trim_matches(['[', ']']);
        let twice = format!("[{inner},{inner}]").parse::<NodeGpus>().unwrap_err();
        assert_eq!(twice.to_string(), "the GPU inventory lists `GPU-0a` twice");
    }

    #[test]
    fn no_more_units_count_than_the_memory_has() {
        let gpus: NodeGpus = ONE.replace(":15,", ":9000,").parse().unwrap();
        assert_eq!(gpus.cards()[0].units, 16);
    }

    #[test]
    fn the_client_cap_follows_capability_and_driver() {
        let cap = |keys: &str| {
            let text = ONE.replace("\"index\"", &format!("{keys}\"index\""));
            text.parse::<NodeGpus>().unwrap().0[0].client_cap()
        };
        assert_eq!(cap(""), 48);
        assert_eq!(cap("\"computeCapability\":\"6.1\","), 16);
        assert_eq!(cap("\"computeCapability\":\"7.0\",\"driver\":\"590.1\","), 60);
        assert_eq!(cap("\"computeCapability\":\"7.0\",\"driver\":\"555.58\","), 48);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in ".*", number in any::<i64>()) {
            drop(text.parse::<NodeGpus>());
            drop(ONE.replace("15", &number.to_string()).parse::<NodeGpus>());
        }
    }
}
