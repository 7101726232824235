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
    let mut own = OWN_ANNOTATIONS.into_iter().filter(|key| is_ours || *key == ALLOCATION);
    let changed = own.find(|key| before.get(*key) != after.get(*key))?;
    Some(Reason::AnnotationReserved { annotation: changed.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_annotations_are_ours_to_set_change_and_remove() {
        let of =
            |value: &str| BTreeMap::from([("mpshare.io/allocation".to_owned(), value.to_owned())]);
        let none = BTreeMap::new();
        let other = BTreeMap::from([("x".to_owned(), "y".to_owned())]);
        assert_eq!(guard(&of("a"), &of("a")), None);
        let aliyun = BTreeMap::from([("ALIYUN_COM_GPU_MEM_IDX".to_owned(), "0".to_owned())]);
        assert_eq!(guard(&none, &aliyun), None, "Aliyun's own extender binds pods of its own");
        let both = |value: &str| of(value).into_iter().chain(aliyun.clone()).collect();
        assert!(guard(&of("a"), &both("a")).is_some());
        assert_eq!(guard(&none, &other), None);
        for (before, after) in [(none.clone(), of("a")), (of("a"), of("b")), (of("a"), none)] {
            assert_eq!(
                guard(&before, &after).unwrap().to_string(),
                "annotation `mpshare.io/allocation` says which GPU a pod has, and is written by mpshare alone; hint: leave it out of new pods, and as it is on others"
            );
        }
    }
}
