//! What nodes and pods say in annotations: the cards of a node, the cards that a pod was given.
//!
//! Amounts in a pod's annotations are only believed where its spec leaves something open, because
//! whoever may edit a pod may edit these (facts/aliyun-gpushare.md 7, point 7).

use std::collections::BTreeMap;

use serde::Deserialize;
use thiserror::Error;

use crate::objects::GPU_MEM;

/// The cards of a node, in index order.
pub(crate) const NODE_GPUS: &str = "mpshare.io/gpus";
/// The number of cards, where it is no entry of the node's capacity.
pub(crate) const GPU_COUNT: &str = "aliyun.com/gpu-count";
/// Which cards a pod's containers were given: the authority.
pub(crate) const ALLOCATION: &str = "mpshare.io/allocation";
/// The same by the indices of containers and cards (ACK Pro).
pub(crate) const ALLOCATION_V2: &str = "scheduler.framework.gpushare.allocation";
/// The index of the one card of a pod (Alibaba's open extender).
pub(crate) const INDEX_V1: &str = "ALIYUN_COM_GPU_MEM_IDX";

/// More cards than any machine has: an index beyond makes no column.
pub(crate) const MAX_GPUS: u32 = 256;

/// Container, by name or index, to card, by UUID or index, to units.
pub(crate) type Allocation = BTreeMap<String, BTreeMap<String, u64>>;

/// One card, as its node names it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeGpu {
    pub(crate) uuid: String,
    pub(crate) index: u32,
    #[serde(default)]
    pub(crate) model: String,
    #[serde(rename = "memoryMiB")]
    pub(crate) memory_mib: u64,
    #[serde(rename = "unitMiB")]
    pub(crate) unit_mib: u64,
    pub(crate) units: u64,
    #[serde(default)]
    pub(crate) state: String,
    /// The resource of the units.
    #[serde(default = "gpu_mem")]
    pub(crate) resource: String,
    /// Why the card isn't ready.
    pub(crate) reason: Option<String>,
    /// Memory in use by processes.
    #[serde(rename = "usedMiB")]
    pub(crate) used_mib: Option<u64>,
}

fn gpu_mem() -> String {
    GPU_MEM.to_owned()
}

/// Why an annotation says nothing.
#[derive(Debug, Error)]
pub(crate) enum AnnotationError {
    /// Its text has another form.
    #[error("annotation `{0}` can't be read: {1}")]
    Form(&'static str, #[source] serde_json::Error),
    /// Its values contradict each other.
    #[error("annotation `{0}` can't be true: {1}")]
    Untrue(&'static str, &'static str),
}

/// The cards of a node by index; none twice, all with one size of unit.
pub(crate) fn node_gpus(text: &str) -> Result<Vec<NodeGpu>, AnnotationError> {
    let mut gpus: Vec<NodeGpu> =
        serde_json::from_str(text).map_err(|error| AnnotationError::Form(NODE_GPUS, error))?;
    gpus.sort_by_key(|gpu| gpu.index);
    let twice = gpus.is_sorted_by(|a, b| a.index < b.index);
    let untrue = [
        (!twice, "two cards have one index"),
        (gpus.iter().any(|gpu| gpu.index >= MAX_GPUS), "an index is above 255"),
        (gpus.iter().any(|gpu| gpu.unit_mib == 0), "a unit is 0 MiB"),
        (
            gpus.windows(2).any(|two| matches!(two, [a, b] if a.unit_mib != b.unit_mib)),
            "cards have units of different sizes",
        ),
    ];
    match untrue.into_iter().find(|(is, _)| *is) {
        Some((_, why)) => Err(AnnotationError::Untrue(NODE_GPUS, why)),
        None => Ok(gpus),
    }
}

/// What a pod was given, in either of the two JSON forms.
pub(crate) fn allocation(name: &'static str, text: &str) -> Result<Allocation, AnnotationError> {
    serde_json::from_str(text).map_err(|error| AnnotationError::Form(name, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARD: &str = r#"{"uuid":"GPU-a","index":0,"model":"Tesla V100-SXM2-16GB","memoryMiB":16384,"unitMiB":1024,"units":15,"state":"Ready","newKey":[]}"#;

    #[test]
    fn a_node_names_its_cards_and_unknown_keys_do_no_harm() {
        let other = CARD.replace("\"index\":0", "\"index\":1").replace("GPU-a", "GPU-b");
        let gpus = node_gpus(&format!("[{other},{CARD}]")).unwrap();
        let uuids: Vec<&str> = gpus.iter().map(|gpu| gpu.uuid.as_str()).collect();
        assert_eq!(uuids, ["GPU-a", "GPU-b"], "by index");
        assert_eq!((gpus[0].units, gpus[0].unit_mib, gpus[0].used_mib), (15, 1024, None));
    }

    #[test]
    fn what_cannot_be_true_is_an_error() {
        for (text, why) in [
            (format!("[{CARD},{CARD}]"), "two cards"),
            (format!("[{}]", CARD.replace("\"index\":0", "\"index\":4000000000")), "above 255"),
            (format!("[{}]", CARD.replace("1024", "0")), "0 MiB"),
            (format!("[{}]", CARD.replace("15", "\"15\"")), "invalid type"),
            (
                format!(
                    "[{CARD},{}]",
                    CARD.replace("1024", "1").replace("\"index\":0", "\"index\":1")
                ),
                "different sizes",
            ),
            ("{}".to_owned(), "expected a sequence"),
        ] {
            let error = node_gpus(&text).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}
