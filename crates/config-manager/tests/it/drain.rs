//! Cards that people want empty.

use mpshare_core::Drain;
use mpshare_testkit::fakekube::{Effect, Matching, Times};
use serde_json::{Value, json};

use crate::harness::{LABEL, NODE, Rig, until};
use crate::{HALVES, report};

const CARD: &str = "GPU-cb1213a3-d6a4-be7f-0d2c-8b2f6c3c7a11";

async fn annotate(rig: &Rig, value: Value) {
    let patch = json!({"metadata": {"annotations": {"mpshare.io/drain": value}}});
    rig.kube.patch("nodes", "", NODE, patch).await.unwrap();
}

fn one_card() -> Value {
    json!({"gpus": [CARD]}).to_string().into()
}

fn drain(rig: &Rig) -> Option<Drain> {
    rig.in_force().map(|config| config.drain.0)
}

async fn until_drained(rig: &Rig, wanted: Drain) {
    until(&format!("{wanted:?}"), || (drain(rig).as_ref() == Some(&wanted)).then_some(())).await;
}

fn only() -> Drain {
    Drain::Cards([CARD.parse().unwrap()].into())
}

#[tokio::test]
async fn what_people_drain_is_part_of_the_config_and_so_is_that_they_no_longer_do() {
    let rig = Rig::on("mps-2x").await;
    rig.report(&report(HALVES));
    rig.until_in_force("mps-2x").await;
    annotate(&rig, one_card()).await;
    until_drained(&rig, only()).await;
    annotate(&rig, json!({"gpus": ["*"]}).to_string().into()).await;
    until_drained(&rig, Drain::All).await;
    annotate(&rig, Value::Null).await;
    until_drained(&rig, Drain::Nothing).await;
    until("one Event", || (rig.events("ConfigApplied").len() == 1).then_some(())).await;
}

#[tokio::test]
async fn a_wish_that_makes_no_sense_is_told_and_what_was_drained_stays() {
    let rig = Rig::on("mps-2x").await;
    rig.report(&report(HALVES));
    annotate(&rig, one_card()).await;
    until_drained(&rig, only()).await;
    for (text, code) in [
        ("nonsense".to_owned(), "DrainUnreadable"),
        (json!({"gpus": ["GPU-0a"]}).to_string(), "DrainUnknownCards"),
    ] {
        annotate(&rig, text.into()).await;
        rig.until_condition("False", code).await;
        until("an Event", || rig.events(code).pop()).await;
        assert_eq!(drain(&rig), Some(only()));
    }
    rig.kube.patch_node_label(NODE, LABEL, "mps-4x").await.unwrap();
    rig.until_in_force("mps-4x").await;
    assert_eq!(drain(&rig), Some(only()), "under another config too");
}

#[tokio::test]
async fn cards_can_be_drained_while_no_config_can_be_chosen() {
    let rig = Rig::on("mps-2x").await;
    rig.report(&report(HALVES));
    rig.until_in_force("mps-2x").await;
    rig.kube.patch_node_label(NODE, LABEL, "broken").await.unwrap();
    rig.until_condition("False", "ConfigInvalid").await;
    annotate(&rig, one_card()).await;
    until_drained(&rig, only()).await;
    assert_eq!(rig.in_force().unwrap().name, "mps-2x");
}

#[tokio::test]
async fn while_nobody_can_be_asked_what_was_drained_stays() {
    let mut rig = Rig::on("mps-2x").await;
    rig.report(&report(HALVES));
    annotate(&rig, one_card()).await;
    until_drained(&rig, only()).await;
    rig.stop().await;
    let nodes = Matching::any().resource("nodes");
    rig.kube.faults().inject(Times::Always, nodes, Effect::Fail(500));
    let before = std::fs::metadata(rig.root.config()).unwrap().modified().unwrap();
    rig.start(|_| {});
    crate::until_elapsed(std::time::Duration::from_millis(300)).await;
    let after = std::fs::metadata(rig.root.config()).unwrap().modified().unwrap();
    assert_eq!((drain(&rig), before), (Some(only()), after));
}
