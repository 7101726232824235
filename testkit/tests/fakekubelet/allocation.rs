//! Which devices a container gets, and what becomes of a pod that gets none.

use std::collections::BTreeSet;

use mpshare_kubelet::checkpoint;
use mpshare_kubelet::pod_resources::{list, lister};
use mpshare_testkit::fakekubelet::{Phase, RestartPolicy, pod};
use tonic::Status;

use super::Setup;
use super::plugin::{Behaviour, GPU, SOON, healthy, reply, unhealthy, wait_until};

fn ids(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

#[tokio::test]
async fn the_preferred_ids_are_taken_if_they_were_offered() {
    let setup = Setup::new().await;
    let plugin = setup.plugin(Behaviour::new(&["a", "b", "c", "d"])).await;
    *plugin.behaviour.preferred.lock().unwrap() = Some(vec!["c".into(), "b".into(), "z".into()]);
    let pod = setup.kubelet.admit(pod("p").gpus(GPU, 2).command(["/bin/sleep", "60"]));
    pod.wait_phase(Phase::Running, SOON).await.unwrap();
    assert_eq!(pod.devices("main", GPU), ids(&["b", "c"]));
    assert_eq!(setup.kubelet.violations(), []);
}

#[tokio::test]
async fn too_few_preferred_ids_are_topped_up() {
    let setup = Setup::new().await;
    let plugin = setup.plugin(Behaviour::new(&["a", "b", "c"])).await;
    *plugin.behaviour.preferred.lock().unwrap() = Some(vec!["c".into()]);
    let pod = setup.kubelet.admit(pod("p").gpus(GPU, 2).command(["/bin/sleep", "60"]));
    pod.wait_phase(Phase::Running, SOON).await.unwrap();
    let got = pod.devices("main", GPU);
    assert!(got.contains("c") && got.len() == 2, "{got:?}");
}

#[tokio::test]
async fn a_refusal_fails_the_pod_with_the_plugins_words() {
    let setup = Setup::new().await;
    let plugin = setup.plugin(Behaviour::new(&["a"])).await;
    *plugin.behaviour.reply.lock().unwrap() = Err(Status::invalid_argument("two cards"));
    let refused = setup.kubelet.admit(pod("p").gpus(GPU, 1));
    let status = refused.wait_phase(Phase::Failed, SOON).await.unwrap();
    assert_eq!(status.reason.as_deref(), Some("UnexpectedAdmissionError"));
    assert_eq!(
        status.message.as_deref(),
        Some(
            "Pod was rejected: Allocate failed due to rpc error: code = InvalidArgument desc = two cards, which is unexpected"
        )
    );
    assert_eq!(setup.kubelet.allocated(GPU), ids(&[]));
}

#[tokio::test]
async fn a_pod_that_predicates_reject_was_allocated_and_is_freed_at_the_next_allocation() {
    let setup = Setup::new().await;
    let plugin = setup.plugin(Behaviour::new(&["a"])).await;
    let rejected = pod("r").gpus(GPU, 1).rejected_by_predicates("OutOfcpu");
    let rejected = setup.kubelet.admit(rejected);
    let status = rejected.wait_phase(Phase::Failed, SOON).await.unwrap();
    assert_eq!(status.reason.as_deref(), Some("OutOfcpu"));
    assert_eq!(setup.kubelet.allocated(GPU), ids(&["a"]));
    let next = setup.kubelet.admit(pod("n").gpus(GPU, 1).command(["/bin/sleep", "60"]));
    next.wait_phase(Phase::Running, SOON).await.unwrap();
    assert_eq!(next.devices("main", GPU), ids(&["a"]));
    assert_eq!(plugin.behaviour.count("Allocate"), 2);
}

#[tokio::test]
async fn too_many_devices_are_refused_with_the_numbers() {
    let setup = Setup::new().await;
    let _plugin = setup.plugin(Behaviour::new(&["a"])).await;
    let refused = setup.kubelet.admit(pod("p").gpus(GPU, 3));
    let status = refused.wait_phase(Phase::Failed, SOON).await.unwrap();
    let message = status.message.unwrap();
    assert!(message.contains("Requested: 3, Available: 1"), "{message}");
}

#[tokio::test]
async fn an_init_containers_devices_are_reused_and_stay_for_the_pods_life() {
    let setup = Setup::new().await;
    let plugin = setup.plugin(Behaviour::new(&["a", "b", "c"])).await;
    let pod = pod("p")
        .init_container("init")
        .gpus(GPU, 2)
        .command(["/bin/true"])
        .container("app")
        .gpus(GPU, 1)
        .command(["/bin/sleep", "60"]);
    let pod = setup.kubelet.admit(pod);
    pod.wait_phase(Phase::Running, SOON).await.unwrap();
    let (init, app) = (pod.devices("init", GPU), pod.devices("app", GPU));
    assert!(app.is_subset(&init), "{app:?} of {init:?}");
    assert_eq!(setup.kubelet.allocated(GPU), init);
    // The second container was covered by what the first one left: no question.
    assert_eq!(plugin.behaviour.count("GetPreferredAllocation"), 1);
    assert_eq!(plugin.behaviour.count("Allocate"), 2);
}

#[tokio::test]
async fn a_sidecar_keeps_its_devices_to_itself() {
    let setup = Setup::new().await;
    let _plugin = setup.plugin(Behaviour::new(&["a", "b"])).await;
    let pod = pod("p")
        .sidecar("side")
        .gpus(GPU, 1)
        .command(["/bin/sleep", "60"])
        .container("app")
        .gpus(GPU, 1)
        .command(["/bin/sleep", "60"]);
    let pod = setup.kubelet.admit(pod);
    pod.wait_phase(Phase::Running, SOON).await.unwrap();
    let both: BTreeSet<String> = &pod.devices("side", GPU) | &pod.devices("app", GPU);
    assert_eq!(both, ids(&["a", "b"]));
}

#[tokio::test]
async fn the_reply_is_frozen_over_container_restarts() {
    let setup = Setup::new().await;
    let plugin = setup.plugin(Behaviour::new(&["a"])).await;
    *plugin.behaviour.reply.lock().unwrap() = Ok(reply(&[("SHARE", "1")], &[]));
    let pod = pod("p").gpus(GPU, 1).shell("echo share=$SHARE; exit 3");
    let pod = setup.kubelet.admit(pod);
    pod.wait("restarts", SOON, |s| s.containers["main"].restarts >= 1).await.unwrap();
    *plugin.behaviour.reply.lock().unwrap() = Ok(reply(&[("SHARE", "2")], &[]));
    plugin.behaviour.list.send_replace(unhealthy(&["a"]));
    setup.allocatable(0).await;
    pod.wait("restarts again", SOON, |s| s.containers["main"].restarts >= 3).await.unwrap();
    assert_eq!(plugin.behaviour.count("Allocate"), 1);
    assert!(!pod.log("main").contains("share=2"), "{}", pod.log("main"));
}

#[tokio::test]
async fn the_checkpoint_has_what_was_allocated_and_keeps_freed_pods() {
    let setup = Setup::new().await;
    let plugin = setup.plugin(Behaviour::new(&["a"])).await;
    *plugin.behaviour.reply.lock().unwrap() = Ok(reply(&[("SHARE", "1")], &[]));
    let pod = pod("p").gpus(GPU, 1).command(["/bin/true"]).restart(RestartPolicy::Never);
    let pod = setup.kubelet.admit(pod);
    pod.wait_phase(Phase::Succeeded, SOON).await.unwrap();
    let options = setup.kubelet.options();
    let mut client = lister(&options.pod_resources_socket).unwrap();
    list(&mut client, SOON).await.unwrap();
    assert_eq!(setup.kubelet.allocated(GPU), ids(&[]));
    let entries = checkpoint::read(&options.device_plugins).unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].pod_uid, pod.uid());
    assert_eq!(entries[0].device_ids, ids(&["a"]));
    assert_eq!(entries[0].reply.as_ref().unwrap().envs["SHARE"], "1");
}

#[tokio::test]
async fn pre_start_holds_a_container_back_until_it_succeeds() {
    let setup = Setup::new().await;
    let mut behaviour = Behaviour::new(&["a"]);
    behaviour.options.pre_start_required = true;
    behaviour.pre_start = std::sync::Mutex::new(Err(Status::unavailable("former owner lives")));
    let plugin = setup.plugin(behaviour).await;
    let pod = setup.kubelet.admit(pod("p").gpus(GPU, 1).command(["/bin/sleep", "60"]));
    plugin.behaviour.called("PreStartContainer", 2).await;
    let status = pod.status();
    assert_eq!(status.phase, Phase::Pending);
    let state = format!("{:?}", status.containers["main"].state);
    assert!(state.contains("CreateContainerConfigError"), "{state}");
    assert!(state.contains("former owner lives"), "{state}");
    *plugin.behaviour.pre_start.lock().unwrap() = Ok(());
    pod.wait_phase(Phase::Running, SOON).await.unwrap();
}

#[tokio::test]
async fn a_list_that_shrinks_while_nothing_is_under_way_is_fine() {
    let setup = Setup::new().await;
    let plugin = setup.plugin(Behaviour::new(&["a", "b"])).await;
    plugin.behaviour.list.send_replace(healthy(&["a"]));
    setup.allocatable(1).await;
    assert_eq!(setup.kubelet.violations(), []);
    wait_until("capacity", || setup.kubelet.capacity(GPU) == 1).await;
}
