use super::*;
use serde_json::{Value, json};

const MEM: &str = "aliyun.com/gpu-mem";

fn gpus() -> NodeGpus {
    let card = |index: u32| {
        json!({"uuid": format!("GPU-0{index}"), "index": index, "model": "T4", "memoryMiB": 15360,
               "unitMiB": 1024, "units": 15, "state": "Ready"})
    };
    json!([card(0), card(1)]).to_string().parse().unwrap()
}

/// A pod with a container per amount, called `c0`, `c1`...
fn pod(name: &str, amounts: &[u64], annotations: &Value) -> NodePod {
    let containers: Vec<Value> = amounts
        .iter()
        .enumerate()
        .map(|(at, units)| {
            json!({"name": format!("c{at}"), "resources": {"limits": {MEM: units.to_string()}}})
        })
        .collect();
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"uid": name, "namespace": "ns", "name": name, "annotations": annotations},
        "spec": {"nodeName": "here", "containers": containers},
    }))
    .unwrap();
    NodePod::of(&pod, String::new()).unwrap()
}

fn planned(name: &str, card: &str, assigned: &str) -> NodePod {
    let allocation = json!({"c0": {card: 7}}).to_string();
    pod(name, &[7], &json!({ALLOCATION: allocation, V1_ASSIGNED: assigned, V2_ASSIGNED: assigned}))
}

fn holding(name: &str, container: &str, card: &str, units: u64) -> Holding {
    Holding {
        pod: PodKey::Uid(name.to_owned()),
        container: container.to_owned(),
        resource: MEM.to_owned(),
        gpu: card.to_owned(),
        units,
    }
}

fn given(entries: &[(&str, &str)]) -> Holdings {
    Holdings::of(entries.iter().map(|(name, card)| holding(name, "c0", card, 7)).collect())
}

/// Pod and change, the latter in a word.
fn due(pods: &[NodePod], holdings: &Holdings) -> Vec<(String, &'static str)> {
    due_after(&Plans::new(), pods, holdings)
}

/// The same with plans of before.
fn due_after(before: &Plans, pods: &[NodePod], holdings: &Holdings) -> Vec<(String, &'static str)> {
    let plans = plans(before, pods, Some(holdings), Some(&gpus()));
    let all = corrections(pods, &plans, holdings, Some(&gpus()));
    let word = |change: &Change| match change {
        Change::Withdraw => "withdraw",
        Change::Assigned => "assigned",
        Change::Claim(_) => "claim",
    };
    all.iter().map(|it| (it.name.clone(), word(&it.change))).collect()
}

fn named(words: &[(&str, &'static str)]) -> Vec<(String, &'static str)> {
    words.iter().map(|(name, word)| ((*name).to_owned(), *word)).collect()
}

#[test]
fn a_pod_that_is_where_it_was_planned_is_only_said_to_be_assigned() {
    let holdings = given(&[("a", "GPU-00")]);
    assert_eq!(due(&[planned("a", "GPU-00", "false")], &holdings), named(&[("a", "assigned")]));
    assert_eq!(due(&[planned("a", "GPU-00", "true")], &holdings), []);
    assert_eq!(due(&[planned("a", "GPU-00", "false")], &given(&[])), [], "it hasn't come yet");
}

#[test]
fn a_card_with_one_unit_of_memory_is_shared_too() {
    let pod = pod("a", &[1], &json!({ALLOCATION: r#"{"c0":{"GPU-01":1}}"#, V1_ASSIGNED: "false"}));
    let holdings = Holdings::of(vec![holding("a", "c0", "GPU-00", 1)]);
    let one_unit = gpus().to_annotation().replace("\"units\":15", "\"units\":1");
    let one_unit: NodeGpus = one_unit.parse().unwrap();
    let plans = plans(&Plans::new(), std::slice::from_ref(&pod), Some(&holdings), Some(&one_unit));
    let all = corrections(&[pod], &plans, &holdings, Some(&one_unit));
    assert_eq!(all[0].change, Change::Withdraw);
}

#[test]
fn a_wrong_claim_waits_for_whoever_was_planned_in_its_place_and_for_nobody_else() {
    let wrong = || planned("a", "GPU-00", "false");
    let holdings = given(&[("a", "GPU-01")]);
    let to_come = |card| planned("b", card, "false");
    assert_eq!(due(&[wrong(), to_come("GPU-01")], &holdings), []);
    assert_eq!(due(&[wrong(), to_come("GPU-00")], &holdings), named(&[("a", "withdraw")]));
}

#[test]
fn two_pods_that_got_each_others_cards_lose_both_claims_before_one_is_made_again() {
    let holdings = given(&[("a", "GPU-01"), ("b", "GPU-00")]);
    let wrong = [planned("a", "GPU-00", "false"), planned("b", "GPU-01", "false")];
    assert_eq!(due(&wrong, &holdings), named(&[("a", "withdraw"), ("b", "withdraw")]));
    let without = |name| pod(name, &[7], &json!({}));
    let one_left = [without("a"), planned("b", "GPU-01", "false")];
    assert_eq!(due(&one_left, &holdings), named(&[("b", "withdraw")]));
    let none_left = [without("a"), without("b")];
    assert_eq!(due(&none_left, &holdings), named(&[("a", "claim"), ("b", "claim")]));
}

#[test]
fn a_claim_is_made_with_all_annotations_but_the_schedulers_time() {
    let holdings = given(&[("a", "GPU-01")]);
    let all = corrections(&[pod("a", &[7], &json!({}))], &Plans::new(), &holdings, Some(&gpus()));
    let all = all[0].change.annotations();
    let form: Vec<String> =
        all.iter().map(|(key, value)| format!("{key}={}", value.as_ref().unwrap())).collect();
    assert_eq!(
        form,
        [
            "ALIYUN_COM_GPU_MEM_ASSIGNED=true",
            "ALIYUN_COM_GPU_MEM_DEV=15",
            "ALIYUN_COM_GPU_MEM_IDX=1",
            "ALIYUN_COM_GPU_MEM_POD=7",
            r#"mpshare.io/allocation={"c0":{"GPU-01":7}}"#,
            r#"scheduler.framework.gpushare.allocation={"0":{"1":7}}"#,
            "scheduler.framework.gpushare.assigned=true",
        ]
    );
}

#[test]
fn while_a_pod_is_on_its_way_no_claim_is_made() {
    let pods = [pod("a", &[7], &json!({})), planned("b", "GPU-01", "false")];
    assert_eq!(due(&pods, &given(&[("a", "GPU-01")])), []);
    let come = given(&[("a", "GPU-01"), ("b", "GPU-01")]);
    assert_eq!(due(&pods, &come), named(&[("a", "claim"), ("b", "assigned")]));
}

#[test]
fn all_containers_of_a_pod_count() {
    let two = pod("a", &[7, 2], &json!({}));
    let first = Holdings::of(vec![holding("a", "c0", "GPU-00", 7)]);
    assert_eq!(due(std::slice::from_ref(&two), &first), []);
    let both = Holdings::of(vec![holding("a", "c0", "GPU-00", 7), holding("a", "c1", "GPU-01", 2)]);
    let all = corrections(&[two], &Plans::new(), &both, Some(&gpus()));
    assert_eq!(
        all[0].change.annotations()[ALLOCATION].as_deref(),
        Some(r#"{"c0":{"GPU-00":7},"c1":{"GPU-01":2}}"#)
    );
}

#[test]
fn garbage_is_replaced_and_what_makes_no_sense_is_left_alone() {
    let garbage = pod("a", &[7], &json!({ALLOCATION: "{{{"}));
    let odd = planned("b", "GPU-01", "false");
    let holdings = Holdings::of(vec![
        holding("a", "c0", "GPU-00", 7),
        holding("b", "c0", "GPU-01", 3),
        holding("gone", "c0", "GPU-01", 3),
    ]);
    assert_eq!(due(&[garbage, odd], &holdings), named(&[("a", "claim")]));
    let unknown = Holdings::of(vec![holding("a", "c0", "GPU-99", 7)]);
    assert_eq!(due(&[pod("a", &[7], &json!({}))], &unknown), []);
    assert_eq!(corrections(&[pod("a", &[7], &json!({}))], &Plans::new(), &unknown, None), []);
}

#[test]
fn units_are_counted_of_pods_that_are_there_and_once_for_an_init_container_and_its_successor() {
    let object = json!({
        "metadata": {"uid": "a", "namespace": "ns", "name": "a"},
        "spec": {
            "initContainers": [{"name": "i", "resources": {"limits": {MEM: "7"}}}],
            "containers": [{"name": "c0", "resources": {"limits": {MEM: "5"}}}],
        },
    });
    let pod = NodePod::of(&serde_json::from_value(object).unwrap(), String::new()).unwrap();
    let holdings = Holdings::of(vec![
        holding("a", "i", "GPU-00", 7),
        holding("a", "c0", "GPU-00", 5),
        holding("gone", "c0", "GPU-01", 3),
    ]);
    assert_eq!(held(&[pod], &holdings), BTreeMap::from([("GPU-00".to_owned(), 7)]));
}

#[test]
fn who_took_the_place_of_a_pod_on_its_way_is_corrected_once_that_one_is_there() {
    let pods = [planned("a", "GPU-00", "false"), planned("b", "GPU-01", "false")];
    assert_eq!(due(&pods, &given(&[("a", "GPU-01")])), []);
    let both = given(&[("a", "GPU-01"), ("b", "GPU-00")]);
    assert_eq!(due(&pods, &both), named(&[("a", "withdraw"), ("b", "withdraw")]));
}

#[test]
fn pods_that_exchanged_places_are_corrected_whoever_else_is_on_its_way() {
    let later = || planned("c", "GPU-00", "false");
    let holdings = given(&[("a", "GPU-01"), ("b", "GPU-00")]);
    let first = [planned("a", "GPU-00", "false"), planned("b", "GPU-01", "false"), later()];
    let plans = plans(&Plans::new(), &first, Some(&holdings), Some(&gpus()));
    let without = |name| pod(name, &[7], &json!({}));
    assert_eq!(due(&first, &holdings), named(&[("a", "withdraw"), ("b", "withdraw")]));
    let none_left = [without("a"), without("b"), later()];
    let due_now = due_after(&plans, &none_left, &holdings);
    assert_eq!(due_now, named(&[("a", "claim"), ("b", "claim")]));
    let one_made = [planned("a", "GPU-01", "true"), without("b"), later()];
    assert_eq!(due_after(&plans, &one_made, &holdings), named(&[("b", "claim")]));
}

#[test]
fn a_plan_stays_while_claims_are_corrected_and_follows_them_afterwards() {
    let holdings = given(&[("a", "GPU-01"), ("b", "GPU-00")]);
    let said = |before: &Plans, pods: &[NodePod]| {
        let next = plans(before, pods, Some(&holdings), Some(&gpus()));
        let on_first = |claim: &Claim| match claim {
            Claim::Of(allocation) => Some(allocation.names(&"GPU-00".parse().unwrap())),
            Claim::Absent | Claim::Unreadable => None,
        };
        (next.values().map(on_first).collect::<Vec<_>>(), next)
    };
    let wrong = [planned("a", "GPU-00", "false"), planned("b", "GPU-01", "false")];
    let (first, before) = said(&Plans::new(), &wrong);
    assert_eq!(first, [Some(true), Some(false)]);
    let half = [planned("a", "GPU-01", "true"), pod("b", &[7], &json!({}))];
    assert_eq!(said(&before, &half).0, first);
    let right = [planned("a", "GPU-01", "true"), planned("b", "GPU-00", "true")];
    assert_eq!(said(&before, &right).0, [Some(false), Some(true)]);
}

#[test]
fn a_static_pod_is_found_by_the_uid_that_the_kubelet_knows() {
    let static_pod = pod("api-uid", &[7], &json!({"kubernetes.io/config.mirror": "file-hash"}));
    let holdings = given(&[("file-hash", "GPU-00")]);
    let all = corrections(&[static_pod], &Plans::new(), &holdings, Some(&gpus()));
    assert_eq!((all.len(), all[0].uid.as_str()), (1, "api-uid"));
}

#[test]
fn a_whole_card_beside_memory_is_no_part_of_the_truth() {
    let object = json!({
        "metadata": {"uid": "a", "namespace": "ns", "name": "a"},
        "spec": {"containers": [
            {"name": "c0", "resources": {"limits": {MEM: "7"}}},
            {"name": "whole", "resources": {"limits": {"nvidia.com/gpu": "1"}}},
        ]},
    });
    let pod = NodePod::of(&serde_json::from_value(object).unwrap(), String::new()).unwrap();
    assert_eq!(due(&[pod], &given(&[("a", "GPU-01")])), named(&[("a", "claim")]));
}
