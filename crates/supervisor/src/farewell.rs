//! When clients of MPS are taken off a card because their pod is about to be killed.
//!
//! The kubelet asks the processes of a deleted pod to end, and kills those that are there when its
//! grace period is over. A client that is killed with work in flight may wedge its neighbours
//! (facts/mps.md 4.1), so its server terminates it shortly before. Whoever ends by itself is left
//! alone until then.
//!
//! The grace period counts from when a pod was first seen to end. That is lost with the supervisor:
//! a successor begins anew, and comes too late for whoever is killed meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use mpshare_mps::ProcessId;

/// So long before the kill.
const LEAD: Duration = Duration::from_secs(2);

/// How often a process is tried that stays a client.
const MOST_TRIES: u32 = 3;

/// Pods that are being deleted, by UID, with their grace periods.
pub(crate) type EndingPods = BTreeMap<String, Duration>;

/// When whose clients are to go.
#[derive(Debug, Default)]
pub(crate) struct Farewells {
    pods: BTreeMap<String, Farewell>,
    tried: BTreeMap<ProcessId, u32>,
}

#[derive(Debug)]
struct Farewell {
    grace: Duration,
    /// `None` where there is no time for it.
    due: Option<Instant>,
}

impl Farewells {
    /// Takes in which pods are being deleted now.
    pub(crate) fn observe(&mut self, ending: &EndingPods, now: Instant) {
        self.pods.retain(|pod, _| ending.contains_key(pod));
        for (pod, &grace) in ending {
            let new = || Farewell { grace, due: due(grace, now) };
            let known = self.pods.entry(pod.clone()).or_insert_with(new);
            // Somebody has lost patience: the kubelet counts the shorter period from now on.
            if grace < known.grace {
                known.grace = grace;
                known.due = [known.due, due(grace, now)].into_iter().flatten().min();
            }
        }
    }

    /// Whether the clients of a pod are to go by now.
    pub(crate) fn is_due(&self, pod: &str, now: Instant) -> bool {
        self.due(pod).is_some_and(|due| due <= now)
    }

    /// In how long those of the next pod are.
    pub(crate) fn next(&self, now: Instant) -> Option<Duration> {
        let dues = self.pods.values().filter_map(|farewell| farewell.due);
        dues.filter_map(|due| due.checked_duration_since(now)).filter(|it| !it.is_zero()).min()
    }

    /// Whom of these clients, whose pods are due, to terminate now. Each is noted as tried.
    pub(crate) fn whom(&mut self, clients: &BTreeSet<ProcessId>) -> Vec<ProcessId> {
        self.tried.retain(|id, _| clients.contains(id));
        let mut whom = Vec::new();
        for id in clients {
            let tries = self.tried.entry(*id).or_default();
            if *tries < MOST_TRIES {
                *tries += 1;
                whom.push(*id);
            }
        }
        whom
    }

    /// Whether a process was terminated, or something else that ends it is on its way.
    pub(crate) fn has_tried(&self, id: &ProcessId) -> bool {
        self.tried.contains_key(id)
    }

    fn due(&self, pod: &str) -> Option<Instant> {
        self.pods.get(pod)?.due
    }
}

fn due(grace: Duration, since: Instant) -> Option<Instant> {
    if grace.is_zero() {
        return None;
    }
    let after = if grace > LEAD { grace.saturating_sub(LEAD) } else { grace / 2 };
    since.checked_add(after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpshare_mps::Pid;

    const fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn ending(pods: &[(&str, u64)]) -> EndingPods {
        let pods = pods.iter().map(|(pod, grace)| ((*pod).to_owned(), Duration::from_secs(*grace)));
        pods.collect()
    }

    #[test]
    fn a_pod_is_due_shortly_before_it_is_killed_and_one_without_a_grace_period_never() {
        for (grace, millis) in
            [(30, Some(28_000)), (3, Some(1_000)), (2, Some(1_000)), (1, Some(500)), (0, None)]
        {
            let start = Instant::now();
            let mut farewells = Farewells::default();
            farewells.observe(&ending(&[("a", grace)]), start);
            assert_eq!(farewells.next(start), millis.map(at), "{grace}");
            assert!(!farewells.is_due("a", start));
            let due = start + at(millis.unwrap_or(100_000));
            farewells.observe(&ending(&[("a", grace)]), due);
            assert_eq!(farewells.is_due("a", due), millis.is_some(), "{grace}");
            assert_eq!(farewells.next(due), None);
        }
    }

    #[test]
    fn the_first_sight_counts_and_a_shorter_period_from_when_it_was_set() {
        let start = Instant::now();
        let mut farewells = Farewells::default();
        farewells.observe(&ending(&[("a", 30), ("b", 30)]), start);
        farewells.observe(&ending(&[("a", 30), ("b", 5)]), start + at(10_000));
        assert_eq!(farewells.next(start + at(10_000)), Some(at(3_000)));
        assert!(farewells.is_due("b", start + at(13_000)));
        assert!(!farewells.is_due("a", start + at(27_999)));
        farewells.observe(&ending(&[("a", 20), ("b", 0)]), start + at(14_000));
        assert!(farewells.is_due("a", start + at(28_000)), "not later than before");
        assert!(farewells.is_due("b", start + at(14_000)));
    }

    #[test]
    fn a_pod_that_is_gone_is_forgotten_and_others_are_none_of_it() {
        let start = Instant::now();
        let mut farewells = Farewells::default();
        farewells.observe(&ending(&[("a", 2)]), start);
        assert!(!farewells.is_due("b", start + at(5_000)));
        farewells.observe(&ending(&[]), start + at(5_000));
        assert!(!farewells.is_due("a", start + at(5_000)));
    }

    #[test]
    fn a_client_that_stays_is_tried_a_few_times_and_one_that_went_is_forgotten() {
        let id = |pid, start| ProcessId { pid: Pid::new(pid).unwrap(), start };
        let mut farewells = Farewells::default();
        let both = BTreeSet::from([id(7, 1), id(8, 1)]);
        assert_eq!(farewells.whom(&both), [id(7, 1), id(8, 1)]);
        let one = BTreeSet::from([id(8, 1)]);
        let tries = (0..10).map(|_| farewells.whom(&one).len()).sum::<usize>();
        assert_eq!(tries, 2);
        assert!(farewells.has_tried(&id(8, 1)) && !farewells.has_tried(&id(7, 1)));
        let again = BTreeSet::from([id(8, 2)]);
        assert_eq!(farewells.whom(&again), [id(8, 2)], "another process with its id");
    }
}
