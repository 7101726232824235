//! Pods of which their node hasn't said where they are.

use super::*;

fn unconfirmed(n: usize, units: u64, gpu: u32) -> PodFacts {
    PodFacts { is_confirmed: false, ..pod(n, Some("n"), &[units], at(&[(gpu, units)])) }
}

#[test]
fn the_place_of_a_pod_that_is_gone_stays_taken_while_one_of_its_size_may_be_in_it() {
    let mut ledger = ledger(vec![card(0, 10), card(1, 10)]);
    for it in [unconfirmed(1, 3, 0), unconfirmed(2, 3, 1), unconfirmed(3, 2, 1)] {
        ledger.set_pod(it);
    }
    ledger.remove_pod(&uid(1));
    assert_eq!(free(&ledger), [7, 5], "2 may be there");
    ledger.set_pod(PodFacts { is_confirmed: true, ..unconfirmed(3, 2, 1) });
    assert_eq!(free(&ledger), [7, 5], "3 never was");
    ledger.set_pod(PodFacts { claim: Claim::Absent, ..unconfirmed(2, 3, 1) });
    ledger.set_pod(PodFacts { is_confirmed: true, ..unconfirmed(2, 3, 0) });
    assert_eq!(free(&ledger), [7, 8], "2 was, and nobody else is");
    ledger.remove_pod(&uid(2));
    assert_eq!(free(&ledger), [10, 8]);
}

#[test]
fn no_place_stays_taken_for_a_pod_that_was_known_to_be_elsewhere_or_for_ever() {
    let mut ledger = ledger(vec![card(0, 10), card(1, 10)]);
    ledger.set_pod(pod(1, Some("n"), &[3], at(&[(0, 3)])));
    ledger.set_pod(unconfirmed(2, 3, 1));
    ledger.remove_pod(&uid(1));
    assert_eq!(free(&ledger), [10, 7], "1 was confirmed");
    ledger.set_pod(unconfirmed(3, 3, 0));
    ledger.remove_pod(&uid(3));
    assert_eq!(free(&ledger), [7, 7]);
    let all = BTreeSet::new();
    let mut listed = ledger.clone();
    listed.keep_pods(&all, &all, NOW);
    assert_eq!(free(&listed), [10, 10], "2 is gone too");
    ledger.expire(NOW);
    ledger.expire(NOW + Duration::from_secs(90));
    assert_eq!(free(&ledger), [10, 7], "the node says nothing");
}

#[test]
fn pods_that_were_listed_unconfirmed_may_be_anywhere_until_they_are_confirmed() {
    let mut ledger = ledger(vec![card(0, 10), card(1, 10)]);
    ledger.set_pod(unconfirmed(1, 3, 0));
    ledger.set_pod(unconfirmed(2, 2, 0));
    ledger.doubt_unconfirmed();
    assert_eq!(free(&ledger), [5, 5]);
    ledger.set_pod(PodFacts { is_confirmed: true, ..unconfirmed(1, 3, 0) });
    assert_eq!(free(&ledger), [5, 8]);
    ledger.expire(NOW);
    ledger.expire(NOW + Duration::from_secs(90));
    assert_eq!(free(&ledger), [5, 10]);
}
