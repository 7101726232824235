//! `holdings.json`: which container holds how many units of which card, as the kubelet says.
//!
//! Written by the device plugin whenever it changes; read by config-manager, which makes the pods'
//! annotations say the same. It is made anew from the kubelet at any time, so that it is written
//! without waiting for the disk.

use serde::{Deserialize, Serialize};

/// All of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holdings {
    /// Format of this document.
    pub version: u32,
    /// One per container and card.
    pub entries: Vec<Holding>,
}

/// What one container holds of one card.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Holding {
    /// Whose it is.
    pub pod: PodKey,
    /// The container: an init container, sidecar or app container.
    pub container: String,
    /// The resource.
    pub resource: String,
    /// UUID of the card.
    pub gpu: String,
    /// How many units.
    pub units: u64,
}

/// A pod, by what the source of the entry knows of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PodKey {
    /// From the kubelet's checkpoint.
    Uid(String),
    /// From the pod resources API, which knows no UIDs; used where the checkpoint can't be read.
    Name {
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
    },
}

impl crate::Versioned for Holdings {
    const VERSION: u32 = Self::VERSION;

    fn version(&self) -> u32 {
        self.version
    }
}

impl Holdings {
    /// The format that this program writes.
    pub const VERSION: u32 = 1;

    /// The document with these entries.
    pub fn of(mut entries: Vec<Holding>) -> Self {
        entries.sort_unstable();
        Self { version: Self::VERSION, entries }
    }
}

impl Default for Holdings {
    fn default() -> Self {
        Self::of(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_pods_survive_the_way_through_the_file() {
        let text = r#"{"version":1,"entries":[
            {"pod":{"uid":"u"},"container":"c","resource":"aliyun.com/gpu-mem","gpu":"GPU-ab","units":7},
            {"pod":{"name":{"namespace":"ns","name":"n"}},"container":"c","resource":"r","gpu":"GPU-ab","units":1}]}"#;
        let read: Holdings = serde_json::from_str(text).unwrap();
        assert_eq!(read.entries[0].pod, PodKey::Uid("u".to_owned()));
        let again: Holdings = serde_json::from_value(serde_json::to_value(&read).unwrap()).unwrap();
        assert_eq!(again, read);
    }
}
