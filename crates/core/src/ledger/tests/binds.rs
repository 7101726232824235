//! Binds in flight, and those of which nobody knows how they ended.

use super::*;

#[test]
fn a_bind_in_flight_holds_its_room_until_the_watch_shows_the_pod_or_it_fails() {
    let mut ledger = ledger(vec![card(0, 15)]);
    let Ok(Reserved::Go(Some(allocation))) =
        ledger.reserve(&uid(1), &demand(&[8]), &name("n"), NOW)
    else {
        panic!()
    };
    assert_eq!(free(&ledger), [7]);
    let again = |ledger: &mut Ledger| ledger.reserve(&uid(1), &demand(&[8]), &name("n"), NOW);
    assert_eq!(again(&mut ledger), Ok(Reserved::Busy));
    assert!(ledger.reserve(&uid(2), &demand(&[8]), &name("n"), NOW).is_err());
    ledger.bound(&uid(1), &name("n"));
    assert_eq!(again(&mut ledger), Ok(Reserved::AlreadyThere));
    assert_eq!(
        ledger.reserve(&uid(1), &demand(&[8]), &name("m"), NOW),
        Ok(Reserved::Elsewhere(name("n")))
    );
    ledger.set_pod(pod(1, Some("n"), &[8], Claim::Of(allocation)));
    assert_eq!((free(&ledger), ledger.reservations()), (vec![7], 0));
    ledger.remove_pod(&uid(1));
    assert_eq!(free(&ledger), [15]);
    assert!(matches!(again(&mut ledger), Ok(Reserved::Go(_))));
    ledger.release(&uid(1), &name("n"));
    assert_eq!(free(&ledger), [15]);
}

#[test]
fn a_bind_of_unknown_end_holds_its_room_while_it_may_still_take_effect() {
    let mut ledger = ledger(vec![card(0, 8), card(1, 8)]);
    let first = ledger.reserve(&uid(1), &demand(&[8]), &name("n"), NOW);
    ledger.leave_open(&uid(1), &name("n"), NOW);
    ledger.set_pod(pod(2, Some("n"), &[8], at(&[(1, 8)])));
    ledger.remove_pod(&uid(2));
    assert_eq!(ledger.reserve(&uid(1), &demand(&[8]), &name("n"), NOW), first);
    ledger.leave_open(&uid(1), &name("n"), NOW);
    ledger.expire(NOW + Duration::from_secs(89));
    assert_eq!(free(&ledger), [0, 8]);
    ledger.expire(NOW + Duration::from_secs(90));
    assert_eq!(free(&ledger), [8, 8]);
}

#[test]
fn a_bind_of_unknown_end_is_not_repeated_where_others_have_its_place_now() {
    let mut ledger = ledger(vec![card(0, 8), card(1, 8)]);
    let place = |reserved| {
        let Ok(Reserved::Go(Some(allocation))) = reserved else { panic!("{reserved:?}") };
        Claim::Of(allocation)
    };
    let first = place(ledger.reserve(&uid(1), &demand(&[8]), &name("n"), NOW));
    assert_eq!(first, at(&[(0, 8)]));
    ledger.leave_open(&uid(1), &name("n"), NOW);
    // By another extender.
    ledger.set_pod(pod(2, Some("n"), &[8], first));
    let again = |ledger: &mut Ledger, now| ledger.reserve(&uid(1), &demand(&[8]), &name("n"), now);
    assert_eq!(again(&mut ledger, NOW), Ok(Reserved::Busy));
    let later = again(&mut ledger, NOW + Duration::from_secs(90));
    assert_eq!(place(later), at(&[(1, 8)]));
}
