//! The annotations of pods that say where they are: mpshare's alone to write.

use std::collections::BTreeMap;

use crate::Reason;

/// All of them. What the ledger believes is the first; programs of Aliyun's plugin read the others.
pub const OWN_ANNOTATIONS: [&str; 9] = [
    ALLOCATION,
    "ALIYUN_COM_GPU_MEM_IDX",
    "ALIYUN_COM_GPU_MEM_POD",
    "ALIYUN_COM_GPU_MEM_DEV",
    "ALIYUN_COM_GPU_MEM_ASSIGNED",
    "ALIYUN_COM_GPU_MEM_ASSUME_TIME",
    "scheduler.framework.gpushare.allocation",
    "scheduler.framework.gpushare.assigned",
    "scheduler.framework.gpushare.assume-time",
];

const ALLOCATION: &str = "mpshare.io/allocation";

/// The finding when somebody sets, changes or removes one of them. `before` is empty for what is
/// created, and for a Binding. Aliyun's are ours on pods of ours alone: its own extender may be there
/// for other nodes.
pub fn guard(
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) -> Option<Reason> {
    let is_ours = before.contains_key(ALLOCATION);
    let own = OWN_ANNOTATIONS.into_iter().filter(|key| is_ours || *key == ALLOCATION);
    let changed = own.into_iter().find(|key| before.get(*key) != after.get(*key))?;
    Some(Reason::AnnotationReserved { annotation: changed.to_owned() })
}
