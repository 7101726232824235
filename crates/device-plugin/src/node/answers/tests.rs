use super::*;
use crate::testing::{options, ready, resource, shared_config, status, unit, write_config};
use mpshare_api::BoundPods;
use mpshare_api::bound_pods::{BoundContainer, BoundPod};
use std::path::PathBuf;

/// A node with two cards in two units each. No daemon can be looked at from here, so that all
/// count as alive.
fn node(dir: &tempfile::TempDir) -> Node {
    let mut options = options(dir.path());
    options.timings.pre_start = Duration::from_millis(50);
    let root = options.root();
    std::fs::create_dir_all(root.path()).unwrap();
    write_config(&root, "mps-2x", &shared_config(2));
    let cards = [0, 1].map(|index| {
        let mut card = ready(index, "mps/nvidia.com/gpu/2x7680M@50.0");
        let pipe = pipe_directory(&options, index);
        std::fs::create_dir_all(pipe.parent().unwrap()).unwrap();
        std::fs::write(&pipe, "no directory").unwrap();
        card.daemon.as_mut().unwrap().pipe_directory = pipe.display().to_string();
        card
    });
    mpshare_api::write_document(&root.status(), &status(cards.into())).unwrap();
    Node::start(options, Instant::now())
}

fn pipe_directory(options: &crate::Options, index: u32) -> PathBuf {
    let uuid = crate::testing::uuid(index);
    options.root().gpu(&resource("nvidia.com/gpu"), &uuid).pipe()
}

/// Its lock is gone, and the report doesn't say so yet.
fn end_daemon(node: &Node, index: u32) {
    let pipe = pipe_directory(node.options(), index);
    std::fs::remove_file(&pipe).unwrap();
    std::fs::create_dir(&pipe).unwrap();
}

#[test]
fn a_card_whose_daemon_is_dead_is_steered_around_and_refuses() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(&dir);
    let gpu = resource("nvidia.com/gpu");
    let all: Vec<String> = [unit(0, 0), unit(1, 0)].map(|id| id.to_string()).into();
    assert_eq!(node.prefer(&gpu, (&all, &[]), 1), [unit(0, 0).to_string()]);
    end_daemon(&node, 0);
    assert_eq!(node.prefer(&gpu, (&all, &[]), 1), [unit(1, 0).to_string()]);
    let reason = node.allocate(&gpu, &[unit(0, 0).to_string()]).unwrap_err();
    assert_eq!(reason.code(), "GpuNotReady");
    assert!(node.allocate(&gpu, &[unit(1, 0).to_string()]).is_ok());
}

#[test]
fn ids_that_are_not_ours_are_no_choice_and_no_share() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(&dir);
    let gpu = resource("nvidia.com/gpu");
    let all: Vec<String> =
        ["", "nic-0", "GPU-ab::0", &unit(1, 0).to_string()].map(Into::into).into();
    assert_eq!(node.prefer(&gpu, (&all, &[]), 1), [unit(1, 0).to_string()]);
    for id in all.iter().take(3) {
        let reason = node.allocate(&gpu, std::slice::from_ref(id)).unwrap_err();
        assert_eq!(reason.code(), "UnknownDevice", "`{id}`");
    }
}

#[tokio::test]
async fn a_container_without_a_record_has_the_holders_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(&dir);
    let ids = [unit(0, 0).to_string()];
    let soon = Duration::from_secs(10);
    assert_eq!(node.pre_start(&ids).await.unwrap_err().code(), "NotRecorded");
    assert!(tokio::time::timeout(soon, node.look.notified()).await.is_ok());
}

const MEM: &str = "aliyun.com/gpu-mem";

/// Two cards of 15 GiB in units of one, of which containers are told in `bound-pods.json`.
fn node_in_units(dir: &tempfile::TempDir) -> Node {
    let mut options = options(dir.path());
    options.timings.plan = Duration::from_secs(20);
    let root = options.root();
    std::fs::create_dir_all(root.path()).unwrap();
    let sharing = "{name: aliyun.com/gpu-mem, memoryUnit: 1Gi}";
    write_config(&root, "gpu-mem", &format!("sharing: {{mps: {{resources: [{sharing}]}}}}"));
    let cards = [0, 1].map(|index| ready(index, "mps/aliyun.com/gpu-mem/15x1024M@100.0"));
    mpshare_api::write_document(&root.status(), &status(cards.into())).unwrap();
    tell(&root, &[]);
    Node::start(options, Instant::now())
}

/// Says of pods which card one container each was planned on for one unit.
fn tell(root: &mpshare_api::MpsRoot, planned: &[(&str, u32)]) {
    let pods = planned.iter().map(|(uid, gpu)| BoundPod {
        uid: (*uid).to_owned(),
        namespace: "ns".to_owned(),
        name: (*uid).to_owned(),
        containers: vec![BoundContainer {
            name: "c".to_owned(),
            resource: MEM.to_owned(),
            units: 1,
            gpu: Some(crate::testing::uuid(*gpu).to_string()),
        }],
        ending: None,
    });
    let document = BoundPods { pods: pods.collect(), ..BoundPods::default() };
    mpshare_api::write_document(&root.bound_pods(), &document).unwrap();
}

#[tokio::test]
async fn the_planned_card_is_waited_for_and_taken() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_in_units(&dir);
    let all: Vec<String> = [unit(0, 0), unit(1, 0)].map(|id| id.to_string()).into();
    let memory = resource(MEM);
    let asked = node.preferred(&memory, (&all, &[]), 1);
    let told = async {
        assert!(!node.knows_who_asks(&memory, 1));
        tell(&node.options.root(), &[("pod-a", 1)]);
        node.refresh(Instant::now());
    };
    let (picked, ()) = tokio::join!(asked, told);
    assert_eq!(picked, [unit(1, 0).to_string()]);
}

#[test]
fn nobody_is_waited_for_where_units_are_no_amounts_of_memory() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(&dir);
    tell(&node.options.root(), &[]);
    node.refresh(Instant::now());
    assert!(node.knows_who_asks(&resource("nvidia.com/gpu"), 1));
}
