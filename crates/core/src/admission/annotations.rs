//! The annotations of pods that say where they are: mpshare's alone to write.

use std::collections::BTreeMap;

use crate::Reason;

/// All of them. What the ledger believes is the first; programs of Aliyun's plugin read the others.
pub const OWN_ANNOTATIONS: [&str; 9] = [
    "mpshare.io/allocation",
    "ALIYUN_COM_GPU_MEM_IDX",
    "ALIYUN_COM_GPU_MEM_POD",
    "ALIYUN_COM_GPU_MEM_DEV",
    "ALIYUN_COM_GPU_MEM_ASSIGNED",
    "ALIYUN_COM_GPU_MEM_ASSUME_TIME",
    "scheduler.framework.gpushare.allocation",
    "scheduler.framework.gpushare.assigned",
    "scheduler.framework.gpushare.assume-time",
];

/// The finding when somebody sets, changes or removes one of them. `before` is empty for what is
/// created, and for a Binding.
pub fn guard(
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) -> Option<Reason> {
    let changed = OWN_ANNOTATIONS.into_iter().find(|key| before.get(*key) != after.get(*key))?;
    Some(Reason::AnnotationReserved { annotation: changed.to_owned() })
}
