use super::*;
use crate::certificates::plan::{Spread, next_step};

const NOW: u64 = 1_800_000_000;
const NAME: &str = "hook.ns.svc";

fn options() -> SelfMade {
    let lives = Lives { authority: Duration::from_mins(150), serving: Duration::from_mins(15) };
    SelfMade {
        namespace: "ns".to_owned(),
        secret: "s".to_owned(),
        service: "hook".to_owned(),
        configuration: "c".to_owned(),
        lives,
        settle: Duration::ZERO,
        look_every: Duration::ZERO,
    }
}

fn made() -> Bundle {
    Bundle::default().after(Step::MakeAll, &options(), NOW).unwrap()
}

fn written(bundle: &Bundle) -> BTreeMap<String, ByteString> {
    let mut data = BTreeMap::new();
    bundle.write(&mut data);
    data
}

#[test]
fn what_is_made_is_good_and_reads_back_as_it_was_written() {
    let bundle = made();
    let found = bundle.found(NAME, NOW);
    assert_eq!(next_step(&found, Spread::Settled, NOW), Step::Rest, "{found:?}");
    assert_eq!(found.serving.unwrap().span.not_after, NOW + 900);
    assert_eq!(found.present.unwrap().not_after, NOW + 9_000);
    assert_eq!(Bundle::read(&written(&bundle)), bundle);
}

#[test]
fn a_serving_certificate_never_outlives_its_ca() {
    let mut options = options();
    options.lives.serving = Duration::from_hours(25);
    let found = Bundle::default().after(Step::MakeAll, &options, NOW).unwrap().found(NAME, NOW);
    assert_eq!(found.serving.unwrap().span.not_after, found.present.unwrap().not_after);
}

#[test]
fn each_step_of_a_rotation_leaves_a_serving_certificate_that_the_bundle_before_trusts() {
    let mut bundle = made();
    for step in [Step::IntroduceNext, Step::SwitchToNext, Step::DropFormers] {
        let after = bundle.after(step, &options(), NOW + 1).unwrap();
        let leaf = certificates(&after.serving.as_ref().unwrap().certificate).remove(0);
        let trusted = |bundle: &Bundle| {
            let mut all = certificates(&bundle.published()).into_iter();
            all.any(|authority| is_signed_by(&leaf, &authority, NOW + 1))
        };
        assert!(trusted(&bundle) && trusted(&after), "{step:?}");
        assert_eq!(Bundle::read(&written(&after)), after);
        bundle = after;
    }
    let found = bundle.found(NAME, NOW + 1);
    assert_eq!(next_step(&found, Spread::Settled, NOW + 1), Step::Rest);
    assert_eq!(bundle.published().matches("BEGIN").count(), 1);
}

#[test]
fn damage_of_any_one_key_is_found_and_repaired() {
    let whole = made().after(Step::IntroduceNext, &options(), NOW).unwrap();
    let other = made();
    for key in written(&whole).keys() {
        let stranger = written(&other).get(key).cloned();
        for damage in
            [None, Some(ByteString(vec![0xff])), Some(ByteString(b"x".to_vec())), stranger]
        {
            let mut data = written(&whole);
            match damage.clone() {
                Some(damage) => data.insert(key.clone(), damage),
                None => data.remove(key),
            };
            let mut bundle = Bundle::read(&data);
            let mut steps = Vec::new();
            loop {
                let step = next_step(&bundle.found(NAME, NOW), Spread::Settled, NOW);
                if step == Step::Rest {
                    break;
                }
                steps.push(step);
                bundle = bundle.after(step, &options(), NOW).unwrap();
                assert!(steps.len() < 5, "{key} {damage:?}: {steps:?}");
            }
            assert!(bundle.found(NAME, NOW).serving.is_some(), "{key}: {steps:?}");
        }
    }
}

#[test]
fn the_name_by_which_api_servers_call_is_in_the_certificate() {
    let found = made().found("other.ns.svc", NOW);
    assert_eq!(next_step(&found, Spread::Settled, NOW), Step::RenewServing);
}
