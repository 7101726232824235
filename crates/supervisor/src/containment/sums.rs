//! Who uses more of a card than its share.
//!
//! Records name pods and no container ids: the kubelet says names of containers, the cgroups their
//! ids, and only the API could tell which is which. So what is certain is the sum over a pod, and
//! where it has several shares, a container that uses more than the largest of them. A pod with one
//! share has one container with a share.

use std::collections::BTreeMap;

use mpshare_api::allocations::AllocationMode;
use mpshare_api::status::ClientStatus;
use mpshare_core::{GpuUuid, Memory, Reason};

use super::shares::{HeldShare, KnownShares};

/// Who exceeds a share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Holder {
    /// UID of the pod.
    pub pod: String,
    /// Its container, where it is certain that it is this one.
    pub container: Option<String>,
}

impl Holder {
    /// Whether a process is one of its.
    pub(crate) fn has(&self, user: &ClientStatus) -> bool {
        user.pod_uid.as_ref() == Some(&self.pod)
            && (self.container.is_none() || user.container_id == self.container)
    }
}

/// By how much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Excess {
    pub holder: Holder,
    pub used: Memory,
    /// What it may use.
    pub share: Memory,
    /// How many shares its pod has.
    pub shares: usize,
    pub pids: Vec<i32>,
}

impl Excess {
    /// The sentence.
    pub(crate) fn reason(&self, gpu: &GpuUuid) -> Reason {
        let Self { holder: Holder { pod, container }, used, share, shares, pids } = self.clone();
        Reason::ShareExceeded { gpu: gpu.clone(), pod, container, shares, used, share, pids }
    }
}

/// Who uses more than it may, at most one holder per pod. A share whose pod isn't known may be
/// anybody's, and so widens what each may use.
pub(crate) fn excesses(shares: &KnownShares, users: &[ClientStatus]) -> Vec<Excess> {
    let KnownShares::These(shares) = shares else { return Vec::new() };
    let mut pods: BTreeMap<&str, Vec<&HeldShare>> = BTreeMap::new();
    for share in shares {
        if let Some(pod) = &share.pod {
            pods.entry(pod).or_default().push(share);
        }
    }
    let unowned = shares.iter().filter(|share| share.pod.is_none());
    let unowned: Memory = unowned.map(|share| share.memory).sum();
    let found = pods.into_iter().filter_map(|(pod, held)| of_pod(pod, &held, unowned, users));
    found.collect()
}

fn of_pod(
    pod: &str,
    held: &[&HeldShare],
    unowned: Memory,
    users: &[ClientStatus],
) -> Option<Excess> {
    if held.iter().any(|share| share.mode == AllocationMode::Exclusive) {
        return None;
    }
    let excess = |container: Option<&String>, share: Memory| {
        let holder = Holder { pod: pod.to_owned(), container: container.cloned() };
        let mine: Vec<&ClientStatus> = users.iter().filter(|user| holder.has(user)).collect();
        let used = mine.iter().filter_map(|user| user.memory_mib.map(Memory::from_mib)).sum();
        let pids = mine.iter().map(|user| user.pid).collect();
        (used > share).then_some(Excess { holder, used, share, shares: held.len(), pids })
    };
    let all = [held.iter().map(|share| share.memory).sum(), unowned].into_iter().sum();
    let largest = held.iter().map(|share| share.memory).max()?;
    let largest = [largest, unowned].into_iter().sum();
    let of_container = || {
        let of_pod = users.iter().filter(|user| user.pod_uid.as_deref() == Some(pod));
        let mut containers: Vec<&String> =
            of_pod.filter_map(|user| user.container_id.as_ref()).collect();
        containers.sort_unstable();
        containers.dedup();
        containers.into_iter().find_map(|container| excess(Some(container), largest))
    };
    let certain = if held.len() > 1 { of_container() } else { None };
    certain.or_else(|| excess(None, all))
}

#[cfg(test)]
mod tests {
    use super::super::shares::share;
    use super::*;

    fn user(pid: i32, pod: &str, container: &str, mib: u64) -> ClientStatus {
        ClientStatus {
            pid,
            memory_mib: Some(mib),
            pod_uid: Some(pod.to_owned()),
            container_id: Some(container.to_owned()),
        }
    }

    fn found(shares: Vec<HeldShare>, users: &[ClientStatus]) -> Vec<(String, Option<String>, u64)> {
        let excesses = excesses(&KnownShares::These(shares), users);
        let told = |it: Excess| (it.holder.pod, it.holder.container, it.used.mib());
        excesses.into_iter().map(told).collect()
    }

    #[test]
    fn the_processes_of_a_pod_count_together_and_up_to_its_share_is_fine() {
        let shares = || vec![share(Some("a"), 4000), share(Some("b"), 4000)];
        let mut users =
            vec![user(1, "a", "x", 2000), user(2, "a", "x", 2000), user(3, "b", "y", 4000)];
        assert_eq!(found(shares(), &users), []);
        users.push(user(4, "a", "x", 1));
        assert_eq!(found(shares(), &users), [("a".to_owned(), None, 4001)]);
    }

    #[test]
    fn of_several_shares_a_container_past_the_largest_is_certain_else_the_sum_counts() {
        let shares = || vec![share(Some("a"), 1000), share(Some("a"), 3000)];
        let told = |users: &[ClientStatus]| found(shares(), users);
        assert_eq!(told(&[user(1, "a", "x", 3000), user(2, "a", "y", 1000)]), []);
        let past = [user(1, "a", "x", 100), user(2, "a", "y", 3001)];
        assert_eq!(told(&past), [("a".to_owned(), Some("y".to_owned()), 3001)]);
        let sum = [user(1, "a", "x", 2500), user(2, "a", "y", 1501)];
        assert_eq!(told(&sum), [("a".to_owned(), None, 4001)]);
    }

    #[test]
    fn nothing_is_said_of_whole_cards_of_unknown_shares_and_of_what_may_be_somebodys() {
        let users = [user(1, "a", "x", 5000)];
        let whole = HeldShare { mode: AllocationMode::Exclusive, ..share(Some("a"), 4000) };
        assert_eq!(found(vec![whole], &users), []);
        assert_eq!(excesses(&KnownShares::Unknown, &users), []);
        assert_eq!(found(vec![share(Some("a"), 4000), share(None, 1000)], &users), []);
        assert_eq!(found(vec![share(Some("a"), 4000), share(None, 999)], &users).len(), 1);
        let silent = ClientStatus { memory_mib: None, ..user(1, "a", "x", 0) };
        assert_eq!(found(vec![share(Some("a"), 4000)], &[silent]), []);
    }
}
