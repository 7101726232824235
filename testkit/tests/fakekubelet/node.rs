//! Restarts of the kubelet and of the node, and the pod resources service.

use mpshare_kubelet::pod_resources::{
    AllocatableResourcesRequest, GetPodResourcesRequest, Holder, list, lister,
};
use mpshare_testkit::fakekubelet::{Phase, RateLimit, RestartPolicy, pod};

use super::Setup;
use super::plugin::{Behaviour, GPU, SOON, device, near, wait_until};

fn holder(pod: &str, container: &str) -> Holder {
    Holder {
        namespace: "default".into(),
        pod: pod.into(),
        container: container.into(),
        resource: GPU.into(),
    }
}

#[tokio::test]
async fn a_restart_removes_sockets_and_keeps_running_pods_with_their_devices() {
    let setup = Setup::new().await;
    let plugin = setup.plugin(Behaviour::new(&["a", "b"])).await;
    let pod = setup.kubelet.admit(pod("p").gpus(GPU, 1).command(["/bin/sleep", "60"]));
    let before = pod.wait_phase(Phase::Running, SOON).await.unwrap();
    let held = pod.devices("main", GPU);
    setup.kubelet.restart().await.unwrap();
    let socket = setup.kubelet.options().device_plugins.join("gpu.sock");
    assert!(!socket.exists());
    assert_eq!(setup.kubelet.capacity(GPU), 0);
    drop(plugin);
    let again = setup.serve("again.sock", Behaviour::new(&["a", "b"]));
    again.register().await.unwrap();
    setup.allocatable(2).await;
    assert_eq!(pod.devices("main", GPU), held);
    assert_eq!(pod.status().pids(), before.pids());
    assert_eq!(again.behaviour.count("Allocate"), 0);
    assert_eq!(setup.kubelet.violations(), []);
}

#[tokio::test]
async fn after_a_restart_a_pod_with_a_finished_container_fails_if_the_plugin_is_away() {
    let setup = Setup::new().await;
    let _plugin = setup.plugin(Behaviour::new(&["a"])).await;
    let pod = pod("p")
        .init_container("init")
        .gpus(GPU, 1)
        .command(["/bin/true"])
        .container("app")
        .gpus(GPU, 1)
        .command(["/bin/sleep", "60"]);
    let pod = setup.kubelet.admit(pod);
    pod.wait_phase(Phase::Running, SOON).await.unwrap();
    setup.kubelet.restart().await.unwrap();
    let status = pod.wait_phase(Phase::Failed, SOON).await.unwrap();
    let message = status.message.unwrap();
    assert!(message.contains("no healthy devices present"), "{message}");
    pod.wait_stopped(SOON).await.unwrap();
    assert!(pod.status().pids().is_empty());
}

#[tokio::test]
async fn after_a_reboot_pods_with_devices_fail() {
    let setup = Setup::new().await;
    let _plugin = setup.plugin(Behaviour::new(&["a"])).await;
    let with = setup.kubelet.admit(pod("with").gpus(GPU, 1).command(["/bin/sleep", "60"]));
    let without = setup.kubelet.admit(pod("without").command(["/bin/sleep", "60"]));
    with.wait_phase(Phase::Running, SOON).await.unwrap();
    without.wait_phase(Phase::Running, SOON).await.unwrap();
    setup.kubelet.reboot().await.unwrap();
    let failed = with.wait_phase(Phase::Failed, SOON).await.unwrap();
    assert_eq!(failed.reason.as_deref(), Some("UnexpectedAdmissionError"));
    without
        .wait("restarts", SOON, |status| {
            status.containers["main"].restarts == 1 && !status.pids().is_empty()
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_pod_that_was_bound_while_the_kubelet_was_down_is_admitted_later() {
    let setup = Setup::new().await;
    setup.kubelet.stop().await;
    let pod = setup.kubelet.admit(pod("p").command(["/bin/sleep", "60"]));
    setup.kubelet.resume().await.unwrap();
    pod.wait_phase(Phase::Running, SOON).await.unwrap();
}

#[tokio::test]
async fn a_restart_frees_a_sync_loop_that_a_plugin_holds_up() {
    let setup = Setup::new().await;
    let behaviour =
        Behaviour { allocate_gate: tokio::sync::Semaphore::new(0), ..Behaviour::new(&["a"]) };
    let plugin = setup.plugin(behaviour).await;
    let hung = setup.kubelet.admit(pod("hung").gpus(GPU, 1));
    plugin.behaviour.called("Allocate", 1).await;
    setup.kubelet.restart().await.unwrap();
    let status = hung.wait_phase(Phase::Failed, SOON).await.unwrap();
    assert!(status.message.unwrap().contains("no healthy devices"));
}

#[tokio::test]
async fn a_peer_that_never_speaks_does_not_hold_up_a_restart() {
    let setup = Setup::new().await;
    let socket = setup.kubelet.options().device_plugins.join("kubelet.sock");
    let _mute = tokio::net::UnixStream::connect(&socket).await.unwrap();
    let restarted = tokio::time::timeout(SOON, setup.kubelet.restart()).await;
    restarted.unwrap().unwrap();
}

#[tokio::test]
async fn pod_resources_lists_active_pods_and_no_init_containers() {
    let setup = Setup::new().await;
    let behaviour = Behaviour::new(&[]);
    let devices = ["a", "b", "c"].map(|id| near(device(id, "Healthy"), &[0, 1]));
    behaviour.list.send_replace(devices.into());
    let _plugin = setup.plugin(behaviour).await;
    let running = pod("running")
        .init_container("init")
        .gpus(GPU, 1)
        .command(["/bin/true"])
        .sidecar("side")
        .gpus(GPU, 1)
        .command(["/bin/sleep", "60"])
        .container("app")
        .gpus(GPU, 1)
        .command(["/bin/sleep", "60"]);
    let running = setup.kubelet.admit(running);
    let done = pod("done").gpus(GPU, 1).command(["/bin/true"]).restart(RestartPolicy::Never);
    running.wait_phase(Phase::Running, SOON).await.unwrap();
    let done = setup.kubelet.admit(done);
    done.wait_phase(Phase::Succeeded, SOON).await.unwrap();

    let socket = &setup.kubelet.options().pod_resources_socket;
    let mut client = lister(socket).unwrap();
    let held = list(&mut client, SOON).await.unwrap();
    assert_eq!(held[&holder("running", "app")], running.devices("app", GPU));
    assert_eq!(held[&holder("running", "side")], running.devices("side", GPU));
    assert_eq!(held.len(), 2, "{held:?}");

    let request = AllocatableResourcesRequest {};
    let all = client.get_allocatable_resources(request).await.unwrap();
    // One entry per device and NUMA node.
    assert_eq!(all.into_inner().devices.len(), 6);

    let ask = |name: &str| GetPodResourcesRequest {
        pod_name: name.into(),
        pod_namespace: "default".into(),
    };
    assert!(client.get(ask("running")).await.is_ok());
    let unknown = client.get(ask("nobody")).await.unwrap_err();
    assert_eq!(unknown.code(), tonic::Code::Unknown);
}

#[tokio::test]
async fn listing_pod_resources_frees_the_devices_of_ended_pods() {
    let setup = Setup::new().await;
    let _plugin = setup.plugin(Behaviour::new(&["a"])).await;
    let pod = pod("p").gpus(GPU, 1).command(["/bin/true"]).restart(RestartPolicy::Never);
    let pod = setup.kubelet.admit(pod);
    pod.wait_phase(Phase::Succeeded, SOON).await.unwrap();
    assert_eq!(setup.kubelet.allocated(GPU).len(), 1);
    let mut client = lister(&setup.kubelet.options().pod_resources_socket).unwrap();
    list(&mut client, SOON).await.unwrap();
    assert_eq!(setup.kubelet.allocated(GPU).len(), 0);
}

#[tokio::test]
async fn pod_resources_can_be_rate_limited() {
    let setup = Setup::with(|options| options.rate_limit = RateLimit::Kubelet).await;
    let mut client = lister(&setup.kubelet.options().pod_resources_socket).unwrap();
    let mut refused = 0;
    for _ in 0..200 {
        refused += usize::from(list(&mut client, SOON).await.is_err());
    }
    assert!(refused > 0);
    wait_until("socket", || setup.kubelet.options().pod_resources_socket.exists()).await;
}
