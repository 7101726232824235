use super::*;
use serde_json::{Value, json};

fn cards() -> Vec<Card> {
    (0..2)
        .map(|index| Card {
            index,
            total: 15,
            uuid: Some(format!("GPU-0{index}")),
            ..Card::default()
        })
        .collect()
}

fn container(name: &str, units: u64) -> Value {
    json!({"name": name, "resources": {"limits": {MEMORY_RESOURCE: units.to_string()}}})
}

#[expect(clippy::needless_pass_by_value, reason = "literals read better at the call")]
fn placed(annotations: Value, spec: Value) -> Option<Place> {
    let pod = json!({"metadata": {"name": "p", "annotations": annotations}, "spec": spec});
    place(&serde_json::from_value(pod).unwrap(), &cards())
}

fn one(annotations: Value) -> Place {
    placed(annotations, json!({"containers": [container("c", 7)]})).unwrap()
}

fn on(shares: &[(u32, u64)]) -> Place {
    Place::On(shares.iter().copied().collect())
}

fn is_pending(place: &Place, why: &str) {
    match place {
        Place::Pending { units: 7, reason } if reason.contains(why) => {}
        other => panic!("{other:?} should be pending: {why}"),
    }
}

#[test]
fn our_annotation_names_the_card_and_the_spec_the_amount() {
    let ours = |text: &str| one(json!({ALLOCATION: text}));
    assert_eq!(ours(r#"{"c":{"GPU-01":7}}"#), on(&[(1, 7)]));
    assert_eq!(ours(r#"{"c":{"GPU-01":1},"gone":{}}"#), on(&[(1, 7)]), "1 is what a user wrote");
    assert_eq!(ours(r#"{"c":{"GPU-00":3,"GPU-01":4}}"#), on(&[(0, 3), (1, 4)]));
}

#[test]
fn what_our_annotation_says_and_cannot_be_true_leaves_the_pod_pending() {
    for (text, why) in [
        (
            r#"{"c":{"GPU-00":3,"GPU-01":3}}"#,
            "6 units are named for container `c`, which asks for 7",
        ),
        (r#"{"c":{"GPU-09":7}}"#, "`GPU-09`, named for container `c`, is no GPU of the node"),
        (r#"{"d":{"GPU-00":7}}"#, "no GPU is named for container `c`"),
        (r#"{"c":{}}"#, "no GPU is named"),
        (r#"{"c":{"GPU-00":-7}}"#, "can't be read"),
        ("7", "can't be read"),
    ] {
        is_pending(&one(json!({ALLOCATION: text, V1_INDEX: "0"})), why);
    }
}

#[test]
fn the_annotation_of_ack_pro_counts_by_index_and_the_older_one_stands_in() {
    assert_eq!(one(json!({V2_ALLOCATION: r#"{"0":{"1":7}}"#, V1_INDEX: "0"})), on(&[(1, 7)]));
    assert_eq!(one(json!({V2_ALLOCATION: r#"{"0":{"0":5,"1":2}}"#})), on(&[(0, 5), (1, 2)]));
    assert_eq!(one(json!({V2_ALLOCATION: "garbage", V1_INDEX: "0"})), on(&[(0, 7)]));
    is_pending(&one(json!({V2_ALLOCATION: "garbage"})), "can't be read");
}

#[test]
fn the_open_extender_s_index_counts_if_the_node_has_it() {
    assert_eq!(one(json!({V1_INDEX: "1", "ALIYUN_COM_MEMORY_RESOURCE_POD": "1"})), on(&[(1, 7)]));
    for index in ["-1", "2", "", "x", "99999999999"] {
        is_pending(&one(json!({V1_INDEX: index})), "a GPU that the node hasn't");
    }
    is_pending(&one(json!({})), "no annotation says which GPU");
}

#[test]
fn a_card_is_held_for_the_most_that_containers_have_at_a_time() {
    let sidecar = json!({"name": "s", "restartPolicy": "Always", "resources": {"limits": {MEMORY_RESOURCE: "1"}}});
    let spec = json!({
        "initContainers": [container("i", 5), sidecar, container("j", 2)],
        "containers": [container("a", 2), {"name": "plain"}, container("b", 1)],
    });
    let all =
        r#"{"i":{"GPU-00":5},"s":{"GPU-00":1},"j":{"GPU-00":2},"a":{"GPU-00":2},"b":{"GPU-01":1}}"#;
    assert_eq!(placed(json!({ALLOCATION: all}), spec.clone()), Some(on(&[(0, 5), (1, 1)])));
    let Some(Place::Pending { units, .. }) = placed(json!({}), spec) else { panic!() };
    assert_eq!(units, 5);
}

#[test]
fn a_pod_without_gpu_memory_has_no_place() {
    assert_eq!(placed(json!({V1_INDEX: "0"}), json!({"containers": [{"name": "c"}]})), None);
    assert_eq!(placed(json!({}), json!({})), None);
}
