//! `allocations.json`: what the device ids that the kubelet holds stand for.
//!
//! Written by the device plugin before it answers an `Allocate`; read by the supervisor, whose
//! limits must let the largest live share through. A record says what a share *is*; whether it is
//! still held is the kubelet's to say.

use mpshare_core::{LiveShare, Memory, Mode, Share, ThreadPercent};
use serde::{Deserialize, Serialize};

/// All records of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocations {
    /// Format of this document.
    pub version: u32,
    /// Grows with each grant, so that the supervisor can say up to which one it has looked for
    /// processes of former owners.
    #[serde(default)]
    pub revision: u64,
    /// One record per container and card.
    pub records: Vec<AllocationRecord>,
}

/// One share that a container holds, or held until a moment ago.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationRecord {
    /// Device ids, all of one card.
    pub ids: Vec<String>,
    /// UUID of the card.
    pub gpu: String,
    /// The resource that was asked for.
    pub resource: String,
    /// Whether the share goes through MPS.
    pub mode: AllocationMode,
    /// Memory.
    pub memory_mib: u64,
    /// Threads, in tenths of a per cent.
    pub percent_tenths: u32,
    /// UID of the pod that holds it, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// UIDs of pods that held one of the ids before, while their processes may still live.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_pods: Vec<String>,
}

/// [`Mode`] on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AllocationMode {
    /// A client of the card's MPS daemon.
    Mps,
    /// The whole card.
    Exclusive,
}

impl crate::Versioned for Allocations {
    const VERSION: u32 = Self::VERSION;

    fn version(&self) -> u32 {
        self.version
    }
}

impl Allocations {
    /// The format that this program writes.
    pub const VERSION: u32 = 1;

    /// The live shares; a record that makes no sense is left out.
    pub fn live(&self) -> Vec<LiveShare> {
        self.records.iter().filter_map(AllocationRecord::live).collect()
    }
}

impl Default for Allocations {
    fn default() -> Self {
        Self { version: Self::VERSION, revision: 0, records: Vec::new() }
    }
}

impl AllocationRecord {
    /// A record of a share.
    pub fn of(live: &LiveShare) -> Self {
        Self {
            ids: live.ids.iter().map(ToString::to_string).collect(),
            gpu: live.gpu.to_string(),
            resource: live.resource.to_string(),
            mode: match live.mode {
                Mode::Mps => AllocationMode::Mps,
                Mode::Exclusive => AllocationMode::Exclusive,
            },
            memory_mib: live.share.memory.mib(),
            percent_tenths: live.share.percent.tenths(),
            pod_uid: None,
            former_pods: Vec::new(),
        }
    }

    /// The share; `None` when the record makes no sense.
    pub fn live(&self) -> Option<LiveShare> {
        let ids = self.ids.iter().map(|id| id.parse().ok()).collect::<Option<Vec<_>>>()?;
        if ids.is_empty() {
            return None;
        }
        Some(LiveShare {
            ids,
            gpu: self.gpu.parse().ok()?,
            resource: self.resource.parse().ok()?,
            mode: match self.mode {
                AllocationMode::Mps => Mode::Mps,
                AllocationMode::Exclusive => Mode::Exclusive,
            },
            share: Share {
                memory: Memory::from_mib(self.memory_mib),
                percent: ThreadPercent::from_tenths(self.percent_tenths).ok()?,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_survives_the_way_through_the_file() {
        let text = r#"{"version":1,"extra":true,"records":[
            {"ids":["GPU-ab::0","GPU-ab::1"],"gpu":"GPU-ab","resource":"nvidia.com/gpu",
             "mode":"mps","memory_mib":7680,"percent_tenths":500},
            {"ids":[],"gpu":"GPU-ab","resource":"nvidia.com/gpu",
             "mode":"mps","memory_mib":1,"percent_tenths":500}]}"#;
        let live = serde_json::from_str::<Allocations>(text).unwrap().live();
        assert_eq!(live.len(), 1, "a record without ids makes no sense");
        assert_eq!(AllocationRecord::of(&live[0]).live().as_ref(), Some(&live[0]));
    }
}
