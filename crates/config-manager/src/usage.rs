//! How much of each card is in use, as it is published: not more often than people look, since
//! each time is a write of the Node object.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mpshare_api::{GpuStatus, NodeStatus};

/// The least time between two changes of what is published.
const INTERVAL: Duration = Duration::from_secs(20);

/// A change of less than this part of a card's memory isn't one.
const PART: u64 = 100;

/// What is published.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    /// MiB by card; a card of which no process tells is missing.
    told: BTreeMap<String, u64>,
    /// What of that is outside of shares; a card without such is missing.
    outside: BTreeMap<String, u64>,
    since: Option<Instant>,
}

impl Usage {
    /// What a card is said to use.
    pub(crate) fn of(&self, uuid: &str) -> Option<u64> {
        self.told.get(uuid).copied()
    }

    /// What of it is said to be outside of shares.
    pub(crate) fn outside(&self, uuid: &str) -> Option<u64> {
        self.outside.get(uuid).copied()
    }

    /// Takes a report in, if it is time and it makes a difference.
    pub(crate) fn update(&mut self, status: Option<&NodeStatus>, now: Instant) {
        let Some(status) = status else { return };
        let is_early =
            self.since.is_some_and(|since| now.saturating_duration_since(since) < INTERVAL);
        if is_early || !status.gpus.iter().any(|gpu| self.differs(gpu)) {
            return;
        }
        let used = |gpu: &GpuStatus| Some((gpu.uuid.clone(), used(gpu)?));
        self.told = status.gpus.iter().filter_map(used).collect();
        let outside = status.gpus.iter().filter(|gpu| gpu.outside_mib > 0);
        self.outside = outside.map(|gpu| (gpu.uuid.clone(), gpu.outside_mib)).collect();
        self.since = Some(now);
    }

    fn differs(&self, gpu: &GpuStatus) -> bool {
        let told = self.outside(&gpu.uuid).unwrap_or(0);
        if (told == 0) != (gpu.outside_mib == 0)
            || told.abs_diff(gpu.outside_mib) > gpu.memory_mib / PART
        {
            return true;
        }
        match (self.of(&gpu.uuid), used(gpu)) {
            (Some(told), Some(used)) => told.abs_diff(used) > gpu.memory_mib / PART,
            (told, used) => told != used,
        }
    }
}

/// What all processes of a card use together; `None` where one of them can't be told.
fn used(gpu: &GpuStatus) -> Option<u64> {
    gpu.users().map(|user| user.memory_mib).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use mpshare_api::status::ClientStatus;

    fn status(used: Option<u64>) -> NodeStatus {
        let process = ClientStatus { pid: 1, memory_mib: used, pod_uid: None, container_id: None };
        let processes = vec![process.clone(), process];
        testing::status("", vec![GpuStatus { processes, ..testing::gpu("GPU-ab", 0) }])
    }

    #[test]
    fn processes_add_up_and_one_that_is_not_told_leaves_the_sum_open() {
        assert_eq!(used(&status(Some(100)).gpus[0]), Some(200));
        assert_eq!(used(&status(None).gpus[0]), None);
    }

    #[test]
    fn what_is_outside_of_shares_is_told_when_it_comes_and_when_it_goes() {
        let mut usage = Usage::default();
        let start = Instant::now();
        let mut told = |outside_mib, seconds| {
            let gpu = GpuStatus { outside_mib, ..testing::gpu("GPU-ab", 0) };
            let status = testing::status("", vec![gpu]);
            usage.update(Some(&status), start + Duration::from_secs(seconds));
            usage.outside("GPU-ab")
        };
        assert_eq!(told(0, 0), None);
        assert_eq!(told(5, 30), Some(5));
        assert_eq!(told(6, 60), Some(5), "too little");
        assert_eq!(told(0, 90), None);
    }

    #[test]
    fn a_change_is_told_when_it_is_large_enough_and_not_sooner_than_people_look() {
        let mut usage = Usage::default();
        let start = Instant::now();
        let told = |usage: &mut Usage, used, seconds| {
            usage.update(Some(&status(used)), start + Duration::from_secs(seconds));
            usage.of("GPU-ab")
        };
        assert_eq!(told(&mut usage, Some(1000), 0), Some(2000), "the first is told at once");
        assert_eq!(told(&mut usage, Some(5000), 19), Some(2000), "too early");
        assert_eq!(told(&mut usage, Some(5000), 20), Some(10_000));
        assert_eq!(told(&mut usage, Some(5010), 100), Some(10_000), "too little");
        assert_eq!(told(&mut usage, None, 120), None);
        usage.update(None, start + Duration::from_secs(200));
    }
}
