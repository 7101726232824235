//! The node's pods: what the device plugin is told of them, and what they are told of it.

use std::collections::BTreeMap;
use std::time::Duration;

use mpshare_api::holdings::{Holding, PodKey};
use mpshare_api::status::ReasonText;
use mpshare_api::{BoundPods, Holdings, read_document, write_document};
use serde_json::{Value, json};

use crate::harness::{NODE, Rig, until};
use crate::report;

const GIB: &str = "mps/aliyun.com/gpu-mem/15x1024M@100.0";
const FIRST: &str = "GPU-cb1213a3-d6a4-be7f-0d2c-8b2f6c3c7a11";
const SECOND: &str = "GPU-5f3c9a20-41d7-6b0e-9c88-27e1d4a0b6f2";
const ALLOCATION: &str = "mpshare.io/allocation";

/// A node with two cards of 15 GiB.
async fn with_two_cards() -> Rig {
    let rig = Rig::on("gpu-mem").await;
    let mut status = report(GIB);
    let mut second = status.gpus[0].clone();
    (second.uuid, second.index) = (SECOND.to_owned(), 1);
    status.gpus.push(second);
    rig.report(&status);
    until("the cards", || rig.annotation("mpshare.io/gpus").filter(|text| text.contains(SECOND)))
        .await;
    rig
}

/// A pod of 7 GiB on the node, as a scheduler binds it; returns its UID.
async fn bound(rig: &Rig, name: &str, card: &str) -> String {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": {
            ALLOCATION: json!({"c": {card: 7}}).to_string(),
            "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
            "scheduler.framework.gpushare.assigned": "false",
            "mine": "stays",
        }},
        "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "i",
            "resources": {"limits": {"aliyun.com/gpu-mem": "7"}}}]},
    });
    let pod = rig.kube.create(pod).await.unwrap();
    pod["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// The kubelet has given these cards.
fn hold(rig: &Rig, given: &[(&str, &str)]) {
    let holding = |(uid, card): &(&str, &str)| Holding {
        pod: PodKey::Uid((*uid).to_owned()),
        container: "c".to_owned(),
        resource: "aliyun.com/gpu-mem".to_owned(),
        gpu: (*card).to_owned(),
        units: 7,
    };
    let holdings = Holdings::of(given.iter().map(holding).collect());
    write_document(&rig.root.holdings(), &holdings).unwrap();
}

fn annotations(rig: &Rig, name: &str) -> BTreeMap<String, String> {
    let pod = rig.kube.get("pods", "default", name).unwrap();
    serde_json::from_value(pod["metadata"]["annotations"].clone()).unwrap()
}

fn is_assigned_on(rig: &Rig, name: &str, card: &str) -> bool {
    let all = annotations(rig, name);
    all.get("ALIYUN_COM_GPU_MEM_ASSIGNED").is_some_and(|said| said == "true")
        && all.get(ALLOCATION).is_some_and(|said| said.contains(card))
}

#[tokio::test]
async fn the_device_plugin_is_told_which_card_was_planned_for_whom() {
    let rig = with_two_cards().await;
    let uid = bound(&rig, "a", SECOND).await;
    let told = || {
        let pods: BoundPods = read_document(&rig.root.bound_pods()).unwrap()?;
        Some(pods.pods.into_iter().map(|pod| (pod.uid, pod.containers[0].gpu.clone())).collect())
    };
    let planned = vec![(uid.clone(), Some(SECOND.to_owned()))];
    until("the pod", || told().filter(|pods: &Vec<_>| *pods == planned)).await;
    std::fs::remove_file(rig.root.bound_pods()).unwrap();
    until("the pod again", || told().filter(|pods| *pods == planned)).await;
    rig.kube.delete("pods", "default", "a").await.unwrap();
    rig.kube.confirm_pod_deletion("default", "a", &uid).await.unwrap();
    until("no pod", || told().filter(Vec::is_empty)).await;
}

#[tokio::test]
async fn pods_that_got_each_others_cards_end_with_true_annotations() {
    let rig = with_two_cards().await;
    let one = bound(&rig, "one", FIRST).await;
    let other = bound(&rig, "other", SECOND).await;
    let mut history = rig.kube.changes();
    hold(&rig, &[(&one, SECOND), (&other, FIRST)]);
    until("the truth", || {
        (is_assigned_on(&rig, "one", SECOND) && is_assigned_on(&rig, "other", FIRST)).then_some(())
    })
    .await;
    assert_eq!(annotations(&rig, "one")["mine"], "stays");
    // In between, no card was claimed by both.
    let mut claims = BTreeMap::from([("one", FIRST.to_owned()), ("other", SECOND.to_owned())]);
    let mut seen = 0;
    while let Ok(Some(change)) =
        tokio::time::timeout(Duration::from_millis(300), history.next()).await
    {
        let said = |value: &Value| {
            value["metadata"]["annotations"][ALLOCATION].as_str().map(str::to_owned)
        };
        let object = &change.object;
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if let Some(claim) = claims.get_mut(name.as_str()) {
            *claim = said(object).unwrap_or_default();
            seen += 1;
        }
        let both = |card| claims.values().all(|claim| claim.contains(card));
        assert!(!both(FIRST) && !both(SECOND), "{claims:?}");
    }
    assert!(seen >= 4, "only {seen} changes were seen");
}

#[tokio::test]
async fn a_pod_of_the_same_name_that_came_later_is_left_alone() {
    let rig = with_two_cards().await;
    bound(&rig, "a", FIRST).await;
    hold(&rig, &[("the former one", SECOND)]);
    let second = bound(&rig, "b", FIRST).await;
    hold(&rig, &[("the former one", SECOND), (&second, FIRST)]);
    until("the other pod", || is_assigned_on(&rig, "b", FIRST).then_some(())).await;
    assert_eq!(annotations(&rig, "a")["ALIYUN_COM_GPU_MEM_ASSIGNED"], "false");
    assert!(annotations(&rig, "a")[ALLOCATION].contains(FIRST));
}

/// A card on which something was found about pods.
fn found(rig: &Rig, message: &str, pods: &[&str]) {
    let mut status = report(GIB);
    status.gpus[0].findings = vec![ReasonText {
        code: "ProcessEvicted".to_owned(),
        message: message.to_owned(),
        pods: pods.iter().map(|uid| (*uid).to_owned()).collect(),
    }];
    rig.report(&status);
}

fn told(rig: &Rig, pod: &str) -> Vec<Value> {
    let mut events = rig.kube.events_of("Pod", pod);
    events.retain(|event| event["reason"] == "ProcessEvicted");
    events
}

#[tokio::test]
async fn a_finding_is_an_event_on_the_pods_that_it_concerns_and_on_a_pod_that_has_just_gone() {
    let rig = with_two_cards().await;
    let (stays, goes) = (bound(&rig, "stays", FIRST).await, bound(&rig, "goes", FIRST).await);
    let both = || {
        let pods: BoundPods = read_document(&rig.root.bound_pods()).unwrap()?;
        (pods.pods.len() == 2).then_some(())
    };
    until("both are known", both).await;
    found(&rig, "process 7 was ended", &[&stays, "nobody"]);
    let event = until("an Event on the pod", || told(&rig, "stays").pop()).await;
    assert_eq!(event["involvedObject"]["uid"], json!(stays));
    assert_eq!(event["metadata"]["namespace"], "default");
    assert_eq!(
        (&event["type"], &event["message"]),
        (&json!("Warning"), &json!("process 7 was ended"))
    );
    rig.kube.confirm_pod_deletion("default", "goes", &goes).await.unwrap();
    let one = || {
        let pods: BoundPods = read_document(&rig.root.bound_pods()).unwrap()?;
        (pods.pods.len() == 1).then_some(())
    };
    until("one has gone", one).await;
    found(&rig, "process 8 was ended", &[&stays, &goes]);
    let event = until("an Event on the pod that has gone", || told(&rig, "goes").pop()).await;
    assert_eq!(event["involvedObject"]["uid"], json!(goes));
    until("two on the other", || (told(&rig, "stays").len() == 2).then_some(())).await;
}
