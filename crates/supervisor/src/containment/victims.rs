//! Whom to end so that a holder comes back to its share.

use std::collections::BTreeSet;

use mpshare_core::Memory;
use mpshare_mps::ProcessId;

use crate::options::OverShare;

/// A process of a holder that uses too much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub id: ProcessId,
    pub memory: Memory,
    pub container: Option<String>,
}

/// Those that have to end. The newest first, until what is left fits: whoever came first had its
/// memory within the share. Only processes of the look before (`known`): an id that was given anew
/// since NVML was asked is somebody else's.
pub(crate) fn whom<'a>(
    policy: OverShare,
    candidates: &'a [Candidate],
    known: &BTreeSet<ProcessId>,
    share: Memory,
) -> Vec<&'a Candidate> {
    let newest = past_the_line(candidates, known, share);
    match (policy, newest.first()) {
        (OverShare::Warn, _) | (_, None) => Vec::new(),
        (OverShare::EvictProcess, Some(_)) => newest,
        (OverShare::EvictContainer, Some(first)) => {
            let is_of = |it: &&Candidate| it.container == first.container && known.contains(&it.id);
            candidates.iter().filter(is_of).collect()
        }
    }
}

fn past_the_line<'a>(
    candidates: &'a [Candidate],
    known: &BTreeSet<ProcessId>,
    share: Memory,
) -> Vec<&'a Candidate> {
    let mut by_age: Vec<&Candidate> = candidates.iter().collect();
    by_age.sort_by_key(|it| std::cmp::Reverse((it.id.start, it.id.pid)));
    let mut left: Memory = candidates.iter().map(|it| it.memory).sum();
    let mut chosen = Vec::new();
    for candidate in by_age {
        if left <= share {
            break;
        }
        if candidate.memory > Memory::ZERO && known.contains(&candidate.id) {
            left = left.saturating_sub(candidate.memory);
            chosen.push(candidate);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use mpshare_mps::Pid;

    use super::*;

    fn candidate(pid: i32, start: u64, mib: u64, container: &str) -> Candidate {
        Candidate {
            id: ProcessId { pid: Pid::new(pid).unwrap(), start },
            memory: Memory::from_mib(mib),
            container: Some(container.to_owned()),
        }
    }

    fn pids(policy: OverShare, candidates: &[Candidate], share: u64) -> Vec<i32> {
        let known = candidates.iter().map(|it| it.id).collect();
        let chosen = whom(policy, candidates, &known, Memory::from_mib(share));
        chosen.iter().map(|it| it.id.pid.get()).collect()
    }

    #[test]
    fn the_newest_end_until_the_rest_fits_whatever_their_ids_are() {
        let four = [
            candidate(40, 1, 1000, "x"),
            candidate(7, 4, 1000, "x"),
            candidate(30, 2, 1000, "x"),
            candidate(20, 3, 1000, "x"),
        ];
        assert_eq!(pids(OverShare::EvictProcess, &four, 3000), [7]);
        assert_eq!(pids(OverShare::EvictProcess, &four, 1999), [7, 20, 30]);
        assert_eq!(pids(OverShare::EvictProcess, &four, 4000), [0; 0]);
        assert_eq!(pids(OverShare::Warn, &four, 1), [0; 0]);
    }

    #[test]
    fn one_process_past_its_share_ends_and_one_without_memory_does_not() {
        let two = [candidate(1, 1, 5000, "x"), candidate(2, 2, 0, "x")];
        assert_eq!(pids(OverShare::EvictProcess, &two, 4000), [1]);
    }

    #[test]
    fn with_a_container_all_its_processes_end_and_no_other_containers() {
        let three =
            [candidate(1, 1, 10, "x"), candidate(2, 2, 4000, "y"), candidate(3, 3, 4000, "x")];
        assert_eq!(pids(OverShare::EvictContainer, &three, 4010), [1, 3]);
    }

    #[test]
    fn an_id_that_was_given_anew_since_the_last_look_is_left_alone() {
        let now = [candidate(1, 1, 3000, "x"), candidate(2, 90, 3000, "x")];
        let before = BTreeSet::from([now[0].id, ProcessId { start: 2, ..now[1].id }]);
        let share = Memory::from_mib(3000);
        for policy in [OverShare::EvictProcess, OverShare::EvictContainer] {
            let chosen = whom(policy, &now, &before, share);
            assert!(chosen.iter().all(|it| it.id.start == 1), "{chosen:?}");
        }
    }
}
