//! Units of memory, and the annotations with a node's cards.

use std::fs;

use mpshare_api::allocations::AllocationMode;
use mpshare_api::inventory_annotation::NodeGpus;
use mpshare_api::status::ReasonText;
use mpshare_api::{AllocationRecord, Allocations, GpuState, write_document};
use serde_json::json;

use crate::harness::{LABEL, NODE, Rig, until};
use crate::report;

const GIB: &str = "mps/aliyun.com/gpu-mem/15x1024M@100.0";

#[tokio::test]
async fn the_label_of_the_ack_document_means_the_config_for_units_of_memory() {
    let mut rig = Rig::new(&json!({"ack.node.gpu.schedule": "mps"})).await;
    rig.start(|_| {});
    let config = rig.until_in_force("gpu-mem").await;
    assert_eq!(config.why, "node label ack.node.gpu.schedule=mps");
    rig.report(&report(GIB));
    rig.until_condition("True", "Ready").await;
}

#[tokio::test]
async fn the_cards_are_published_as_long_as_the_node_is_shared() {
    let rig = Rig::on("gpu-mem").await;
    rig.report(&report(GIB));
    let gpus = |text: &str| {
        let wanted = text.to_owned();
        move |rig: &Rig| rig.annotation("mpshare.io/gpus").filter(|said| said.contains(&wanted))
    };
    let ready = gpus(r#""state":"Ready""#);
    let said = until("the cards", || ready(&rig)).await;
    let cards: NodeGpus = said.parse().unwrap();
    assert_eq!((cards.0[0].units, cards.0[0].unit_mib, cards.0[0].memory_mib), (15, 1024, 15360));
    assert_eq!(rig.annotation("aliyun.com/gpu-count").as_deref(), Some("1"));

    let mut broken = report(GIB);
    broken.gpus[0].state = GpuState::Fault;
    rig.report(&broken);
    let fault = gpus(r#""state":"Fault""#);
    until("the fault", || fault(&rig)).await;

    // Somebody else's edit is set right.
    let edit = json!({"metadata": {"annotations": {"mpshare.io/gpus": "[]", "other": "stays"}}});
    rig.kube.patch("nodes", "", NODE, edit).await.unwrap();
    until("the cards again", || fault(&rig)).await;

    rig.kube.patch_node_label(NODE, LABEL, "mps-1x").await.unwrap();
    rig.until_in_force("mps-1x").await;
    let gone = || rig.annotation("mpshare.io/gpus").is_none().then_some(());
    until("no cards", gone).await;
    assert_eq!(rig.annotation("aliyun.com/gpu-count"), None);
    assert_eq!(rig.annotation("other").as_deref(), Some("stays"));
}

#[tokio::test]
async fn units_that_older_shares_hold_back_are_not_published() {
    let rig = Rig::on("gpu-mem").await;
    let share = AllocationRecord {
        ids: vec!["GPU-cb1213a3-d6a4-be7f-0d2c-8b2f6c3c7a11::0".to_owned()],
        gpu: "GPU-cb1213a3-d6a4-be7f-0d2c-8b2f6c3c7a11".to_owned(),
        resource: "nvidia.com/gpu".to_owned(),
        mode: AllocationMode::Mps,
        memory_mib: 7680,
        percent_tenths: 500,
        pod_uid: None,
        former_pods: Vec::new(),
    };
    fs::create_dir_all(rig.root.path()).unwrap();
    let allocations = Allocations { records: vec![share], ..Allocations::default() };
    write_document(&rig.root.allocations(), &allocations).unwrap();
    rig.report(&report(GIB));
    let units = || Some(rig.annotation("mpshare.io/gpus")?.parse::<NodeGpus>().unwrap().0[0].units);
    until("no units yet", || (units() == Some(0)).then_some(())).await;
    write_document(&rig.root.allocations(), &Allocations::default()).unwrap();
    until("all units", || (units() == Some(15)).then_some(())).await;
}

#[tokio::test]
async fn what_processes_on_a_card_do_is_an_event_and_published_and_the_condition_stays() {
    let rig = Rig::on("gpu-mem").await;
    let mut found = report(GIB);
    let message = "process 7 belongs to no share".to_owned();
    let finding =
        ReasonText { code: "OutsideShares".to_owned(), message: message.clone(), pods: Vec::new() };
    found.gpus[0].findings = vec![finding];
    rig.report(&found);
    let event = until("an Event", || rig.events("OutsideShares").pop()).await;
    assert_eq!((&event["type"], &event["message"]), (&json!("Warning"), &json!(message)));
    let said = || rig.annotation("mpshare.io/gpus").filter(|said| said.contains(&message));
    let cards: NodeGpus = until("the finding", said).await.parse().unwrap();
    assert_eq!(cards.0[0].state, "Ready");
    rig.until_condition("True", "Ready").await;
}
