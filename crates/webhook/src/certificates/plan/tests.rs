use super::*;

/// From 1,000 on for so many seconds.
const fn span(life: u64) -> Span {
    Span { not_before: 1_000, not_after: 1_000 + life }
}

const fn leaf(life: u64) -> Leaf {
    Leaf { span: span(life), issuer: Issuer::Present, name: Name::Right }
}

/// A CA of 9,000 s and a serving certificate of 900 s.
const fn usual() -> Found {
    Found { present: Some(span(9_000)), next: None, formers: 0, serving: Some(leaf(900)) }
}

/// The steps while the bundle settles and when it has.
fn steps(found: Found, now: u64) -> [Step; 2] {
    [Spread::Settling, Spread::Settled].map(|spread| next_step(&found, spread, now))
}

fn check(found: Found, now: u64, step: Step) {
    assert_eq!(steps(found, now), [step; 2]);
}

#[test]
fn nothing_is_done_about_what_is_good() {
    check(usual(), 1_000, Step::Rest);
    check(usual(), 1_599, Step::Rest);
}

#[test]
fn without_a_secret_or_with_garbage_in_it_everything_is_made() {
    check(Found::default(), 1_000, Step::MakeAll);
    check(Found { present: None, ..usual() }, 1_000, Step::MakeAll);
    check(Found { present: None, formers: 2, ..usual() }, 1_000, Step::MakeAll);
}

#[test]
fn garbage_for_a_serving_certificate_is_replaced_by_the_same_ca() {
    check(Found { serving: None, ..usual() }, 1_000, Step::RenewServing);
}

#[test]
fn a_serving_certificate_is_renewed_after_two_thirds_of_its_life_and_after_its_end() {
    check(usual(), 1_600, Step::RenewServing);
    check(usual(), 1_901, Step::RenewServing);
}

#[test]
fn a_serving_certificate_of_another_ca_or_name_is_replaced() {
    let other = Leaf { issuer: Issuer::Other, ..leaf(900) };
    check(Found { serving: Some(other), ..usual() }, 1_000, Step::RenewServing);
    let renamed = Leaf { name: Name::Wrong, ..leaf(900) };
    check(Found { serving: Some(renamed), ..usual() }, 1_000, Step::RenewServing);
}

#[test]
fn a_serving_certificate_that_ends_with_its_ca_isnt_renewed_by_it() {
    let found = Found { serving: Some(leaf(9_000)), next: Some(span(20_000)), ..usual() };
    assert_eq!(steps(found, 9_990), [Step::Rest, Step::SwitchToNext]);
}

#[test]
fn an_expired_ca_is_replaced_at_once_by_the_next_one_or_else_by_a_new_one() {
    let found = Found { serving: Some(leaf(9_000)), ..usual() };
    check(found, 10_001, Step::MakeAll);
    check(Found { next: Some(span(20_000)), ..found }, 10_001, Step::SwitchToNext);
    check(Found { next: Some(span(9_000)), ..found }, 10_001, Step::MakeAll);
}

#[test]
fn a_ca_is_replaced_in_three_steps_with_a_pause_after_each() {
    let late = Found { serving: Some(leaf(8_999)), ..usual() };
    check(late, 7_000, Step::RenewServing);
    let serving = Leaf { span: Span { not_before: 6_900, not_after: 9_000 }, ..leaf(0) };
    let due = Found { serving: Some(serving), ..usual() };
    check(due, 6_999, Step::Rest);
    check(due, 7_000, Step::IntroduceNext);
    let both = Found { next: Some(span(19_000)), ..due };
    assert_eq!(steps(both, 7_001), [Step::Rest, Step::SwitchToNext]);
    let switched = Found { present: both.next, next: None, formers: 1, ..due };
    assert_eq!(steps(switched, 7_002), [Step::Rest, Step::DropFormers]);
    check(Found { formers: 0, ..switched }, 7_003, Step::Rest);
}

#[test]
fn a_serving_certificate_is_renewed_while_a_bundle_settles() {
    let found = Found { next: Some(span(20_000)), ..usual() };
    assert_eq!(steps(found, 1_600), [Step::RenewServing, Step::SwitchToNext]);
}

#[test]
fn a_next_ca_that_is_over_is_dropped_or_made_anew() {
    let found = Found { next: Some(span(10)), ..usual() };
    assert_eq!(steps(found, 1_011), [Step::Rest, Step::DropFormers]);
    let serving = Leaf { span: Span { not_before: 6_900, not_after: 9_000 }, ..leaf(0) };
    check(Found { serving: Some(serving), ..found }, 7_000, Step::IntroduceNext);
}

#[test]
fn what_isnt_valid_yet_was_made_under_a_wrong_clock_and_is_made_anew() {
    check(usual(), 999, Step::MakeAll);
    let ahead = Leaf { span: Span { not_before: 5_000, not_after: 5_900 }, ..leaf(0) };
    check(Found { serving: Some(ahead), ..usual() }, 1_000, Step::RenewServing);
}

#[test]
fn a_clock_that_jumps_ahead_past_everything_has_everything_made() {
    check(usual(), u64::MAX, Step::MakeAll);
}
