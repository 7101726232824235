use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

fn node(value: Value) -> Node {
    serde_json::from_value(value).unwrap()
}

fn pod(value: Value) -> Pod {
    serde_json::from_value(value).unwrap()
}

/// A node of Alibaba's plugin.
fn aliyun(name: &str, units: &str, count: &str) -> Node {
    let capacity = json!({"aliyun.com/gpu-mem": units, "aliyun.com/gpu-count": count, "cpu": "8"});
    node(json!({"metadata": {"name": name}, "status": {
        "capacity": capacity, "allocatable": capacity,
        "addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": "10.0.0.1"}],
    }}))
}

fn card(index: u32, units: u64) -> Value {
    json!({"uuid": format!("GPU-0{index}"), "index": index, "model": "H200", "memoryMiB": 143_771,
        "unitMiB": 1024, "units": units, "state": "Ready"})
}

/// A node of ours.
fn ours(name: &str, cards: &Value) -> Node {
    let annotations = json!({"mpshare.io/gpus": cards.to_string()});
    node(json!({"metadata": {"name": name, "annotations": annotations},
        "status": {"capacity": {"aliyun.com/gpu-mem": "15"}}}))
}

#[expect(clippy::needless_pass_by_value, reason = "literals read better at the call")]
fn pod_on(node: &str, name: &str, units: &str, annotations: Value) -> Pod {
    pod(json!({
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"nodeName": node, "containers": [
            {"name": "c", "resources": {"limits": {"aliyun.com/gpu-mem": units}}}]},
        "status": {"phase": "Running"},
    }))
}

#[test]
fn a_node_of_ours_has_the_cards_and_the_unit_that_it_names() {
    let report = report(&[ours("a", &json!([card(1, 140), card(0, 139)]))], &[]);
    let node = &report.nodes[0];
    assert_eq!(node.unit, Memory::from_gib(1), "an H200's 140 GiB are GiB");
    let totals: Vec<u64> = node.cards.iter().map(|card| card.total).collect();
    assert_eq!(totals, [139, 140], "each its own, not what the capacity says");
    assert_eq!(node.cards[0].state.as_deref(), Some("Ready"));
}

#[test]
fn cards_that_cannot_be_of_one_node_do_not_count() {
    for (change, why) in [
        (json!({"unitMiB": 512}), "units of 1024 MiB and of 512 MiB"),
        (json!({"index": 4_000_000_000_u32}), "a GPU with the index 4000000000"),
    ] {
        let mut other = card(1, 140);
        let change = change.as_object().unwrap().clone();
        other.as_object_mut().unwrap().extend(change);
        let report = report(&[ours("a", &json!([card(0, 139), other]))], &[]);
        let problems = report.nodes[0].problems.join("; ");
        assert!(problems.contains(why), "{problems}");
        assert_eq!(report.nodes[0].total(), 15, "as the capacity implies");
    }
}

#[test]
fn why_a_card_is_not_ready_and_what_is_used_of_it_are_told() {
    let mut fault = card(0, 15);
    fault["state"] = "Fault".into();
    fault["reason"] = "fell off the bus".into();
    fault["usedMiB"] = 6321.into();
    let report = report(&[ours("a", &json!([fault]))], &[]);
    let card = &report.nodes[0].cards[0];
    assert_eq!(card.reason.as_deref(), Some("fell off the bus"));
    assert_eq!((card.state.as_deref(), card.used), (Some("Fault"), Some(Memory::from_mib(6321))));
}

#[test]
fn a_node_of_the_original_plugin_has_equal_cards() {
    let report =
        report(&[aliyun("a", "30", "2"), aliyun("b", "44712", "4"), aliyun("h", "140", "1")], &[]);
    let all = |node: &NodeReport| (node.cards.len(), node.cards[0].total, node.unit.mib());
    assert_eq!(
        report.nodes.iter().map(all).collect::<Vec<_>>(),
        [(2, 15, 1024), (4, 11178, 1), (1, 140, 1024)]
    );
    assert_eq!(report.nodes[0].address.as_deref(), Some("10.0.0.1"));
}

#[test]
fn nodes_without_gpu_memory_are_left_out_and_the_others_are_in_order() {
    let cpu = node(json!({"metadata": {"name": "a-cpu"}, "status": {"capacity": {"cpu": "8"}}}));
    let replicas = json!([{"uuid": "GPU-00", "index": 0, "model": "T4", "state": "Ready", "memoryMiB": 16384, "unitMiB": 8192, "units": 2,
        "resource": "nvidia.com/gpu"}]);
    let nodes = [
        aliyun("b", "15", "1"),
        cpu,
        ours("r", &replicas),
        aliyun("off", "0", "1"),
        aliyun("a", "15", "1"),
    ];
    let report = report(&nodes, &[]);
    let names: Vec<&str> = report.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn what_a_node_lacks_is_a_problem_that_is_told() {
    let mut bad = aliyun("bad", "30", "2");
    bad.metadata.annotations = Some([("mpshare.io/gpus".to_owned(), "[{}]".to_owned())].into());
    let mut less = aliyun("less", "30", "2");
    less.status.allocatable = Some([("aliyun.com/gpu-mem".to_owned(), json!("15"))].into());
    let mut unready = ours("unready", &json!([card(0, 15)]));
    unready.status.conditions = serde_json::from_value(json!([
        {"type": "MPSShareReady", "status": "False", "message": "no driver"}]))
    .unwrap();
    let many = aliyun("many", "30", "99999999999");
    let report = report(&[bad, less, unready, many], &[]);
    let problem = |n: usize| report.nodes[n].problems.join("; ");
    assert!(
        problem(0).contains("annotation `mpshare.io/gpus` doesn't count: `uuid` of card 0"),
        "{}",
        problem(0)
    );
    assert_eq!(report.nodes[0].cards.len(), 2, "as the capacity implies");
    assert_eq!(problem(1), "only 15 of 30 units can be allocated");
    assert!(problem(2).contains("taken for 1"));
    assert_eq!(problem(3), "no driver");
}

#[test]
fn pods_that_have_ended_or_are_on_no_node_have_nothing() {
    let ended = |phase: &str| {
        let mut pod = pod_on("a", phase, "4", json!({}));
        pod.status.phase = phase.to_owned();
        pod
    };
    let mut unbound = pod_on("a", "unbound", "4", json!({}));
    unbound.spec.node_name = None;
    let elsewhere = pod_on("b", "elsewhere", "4", json!({}));
    let nothing = pod_on("a", "nothing", "0", json!({}));
    let pods = [ended("Succeeded"), ended("Failed"), unbound, elsewhere, nothing];
    assert!(report(&[aliyun("a", "15", "1")], &pods).nodes[0].pods.is_empty());
}

#[test]
fn what_is_pending_counts_as_allocated_on_the_node_and_on_no_card() {
    let pods = [
        pod_on("a", "z", "4", json!({})),
        pod_on("a", "y", "3", json!({"ALIYUN_COM_GPU_MEM_IDX": "1"})),
    ];
    let node = &report(&[aliyun("a", "30", "2")], &pods).nodes[0];
    assert_eq!(
        (node.allocated(), node.pending(), node.allocated_on(0), node.allocated_on(1)),
        (7, 4, 0, 3)
    );
    assert_eq!(node.pods[0].name, "y", "by name");
}

#[test]
fn the_percentage_is_cut_off_and_never_overflows() {
    assert_eq!(
        (percent(7, 15), percent(0, 0), percent(u64::MAX, 1)),
        (46, 0, u128::from(u64::MAX) * 100)
    );
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-zA-Z0-9-]{0,6}|GPU-0[01]|c|0|1".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        let keys = "c|0|1|GPU-00|GPU-01|uuid|index|units|unitMiB|memoryMiB|[a-z]{1,3}";
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(keys, inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn all_forms(report: &Report) {
    let texts =
        [crate::text::summary, crate::text::details, crate::text::wide, crate::text::wide_pods];
    for text in texts {
        assert!(!text(report).contains('\t'));
    }
    crate::json::json(report).unwrap();
}

proptest! {
    #[test]
    fn no_json_in_annotations_makes_anything_panic(
        gpus in any_json(), first in any_json(), second in any_json(), index in ".{0,4}", units in ".{0,12}"
    ) {
        let good = json!([card(0, 15), card(1, u64::MAX)]);
        let pods: Vec<Pod> = [first, second].into_iter().flat_map(|value| {
            ["mpshare.io/allocation", "scheduler.framework.gpushare.allocation"].map(|key| {
                pod_on("a", "p", &units, json!({key: value.to_string(), "ALIYUN_COM_GPU_MEM_IDX": index}))
            })
        }).collect();
        for cards in [gpus, good] {
            let nodes = [ours("a", &cards), aliyun("b", &units, &index)];
            all_forms(&report(&nodes, &pods));
        }
    }

    #[test]
    fn no_text_in_annotations_makes_anything_panic(gpus in ".*", allocation in ".*") {
        let mut node = aliyun("a", "15", "1");
        node.metadata.annotations = Some([("mpshare.io/gpus".to_owned(), gpus)].into());
        let pod = pod_on("a", "p", "7", json!({"mpshare.io/allocation": allocation}));
        all_forms(&report(&[node], &[pod]));
    }

    #[test]
    fn whatever_annotations_say_a_pod_has_what_its_spec_asks_for(allocation in any_json()) {
        let pod = pod_on("a", "p", "7", json!({"mpshare.io/allocation": allocation.to_string()}));
        let node = &report(&[ours("a", &json!([card(0, 15), card(1, 15)]))], &[pod]).nodes[0];
        prop_assert_eq!(node.allocated(), 7);
    }
}
