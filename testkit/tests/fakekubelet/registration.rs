//! Registration, streams, and what a kubelet doesn't survive.

use std::time::Duration;

use mpshare_kubelet::device_plugin::register;
use mpshare_testkit::fakekubelet::{Phase, Rpc, Violation, pod};

use super::Setup;
use super::plugin::{
    Behaviour, GPU, Plugin, SOON, device, healthy, request, unhealthy, wait_until,
};

#[tokio::test]
async fn a_registered_plugin_gives_capacity_and_allocatable() {
    let setup = Setup::new().await;
    let plugin = setup.plugin(Behaviour::new(&["a", "b"])).await;
    let mut devices = healthy(&["a"]);
    devices.extend(unhealthy(&["b", "c"]));
    plugin.behaviour.list.send_replace(devices);
    setup.allocatable(1).await;
    assert_eq!(setup.kubelet.capacity(GPU), 3);
    assert_eq!(setup.kubelet.violations(), []);
}

#[tokio::test]
async fn an_empty_list_is_a_resource_with_capacity_0() {
    let setup = Setup::new().await;
    let plugin = setup.serve("gpu.sock", Behaviour::new(&[]));
    plugin.register().await.unwrap();
    wait_until("list", || setup.kubelet.device_list(GPU).is_some()).await;
    assert_eq!(setup.kubelet.node_status()[GPU].capacity, 0);
}

#[tokio::test]
async fn wrong_versions_and_names_are_refused() {
    let setup = Setup::new().await;
    let socket = setup.kubelet.options().device_plugins.join("kubelet.sock");
    let mut wrong = request("gpu.sock", GPU);
    wrong.version = "v1alpha".into();
    assert!(register(&socket, wrong, SOON).await.is_err());
    let wrong = request("gpu.sock", "kubernetes.io/gpu");
    assert!(register(&socket, wrong, SOON).await.is_err());
    assert_eq!(setup.kubelet.node_status().len(), 0);
}

#[tokio::test]
async fn registering_before_serving_is_a_violation() {
    let setup = Setup::with(|options| options.dial_timeout = Duration::from_millis(100)).await;
    let socket = setup.kubelet.options().device_plugins.join("kubelet.sock");
    let refused = register(&socket, request("late.sock", GPU), SOON).await;
    assert!(refused.is_err());
    let expected = Violation::NotServing { resource: GPU.into(), endpoint: "late.sock".into() };
    assert_eq!(setup.kubelet.violations(), [expected]);
}

#[tokio::test]
async fn a_plugin_that_hangs_up_while_registering_is_no_violation() {
    let setup = Setup::with(|options| options.dial_timeout = Duration::from_millis(300)).await;
    let socket = setup.kubelet.options().device_plugins.join("kubelet.sock");
    let short = Duration::from_millis(50);
    let gave_up = register(&socket, request("gone.sock", GPU), short).await;
    assert!(gave_up.is_err());
    // This one waits its time out, and by then the first one's is out too.
    let refused = register(&socket, request("late.sock", GPU), SOON).await;
    assert!(refused.is_err());
    let expected = Violation::NotServing { resource: GPU.into(), endpoint: "late.sock".into() };
    assert_eq!(setup.kubelet.violations(), [expected]);
}

#[tokio::test]
async fn the_end_of_a_stream_keeps_capacity_and_takes_allocatable() {
    let setup = Setup::with(|options| options.endpoint_grace = Duration::from_millis(300)).await;
    let plugin = setup.plugin(Behaviour::new(&["a", "b"])).await;
    plugin.end();
    setup.allocatable(0).await;
    assert_eq!(setup.kubelet.capacity(GPU), 2);
    wait_until("expiry", || setup.kubelet.capacity(GPU) == 0).await;
    assert!(setup.kubelet.node_status().contains_key(GPU));
    assert_eq!(setup.kubelet.violations(), []);
}

#[tokio::test]
async fn overlapping_registrations_disconnect_the_newer_client() {
    let setup = Setup::new().await;
    let older = setup.plugin(Behaviour::new(&["a"])).await;
    let newer = setup.serve("newer.sock", Behaviour::new(&["a", "b"]));
    newer.register().await.unwrap();
    setup.allocatable(2).await;
    older.end();
    setup.allocatable(0).await;
    let expected = Violation::NewerClientDisconnected { resource: GPU.into() };
    assert_eq!(setup.kubelet.violations(), [expected]);
    wait_until("the newer stream is closed", || {
        newer.behaviour.list.is_closed() || newer.behaviour.list.receiver_count() == 0
    })
    .await;
}

#[tokio::test]
async fn registering_again_after_the_old_stream_ended_works() {
    let setup = Setup::new().await;
    let older = setup.plugin(Behaviour::new(&["a"])).await;
    older.end();
    setup.allocatable(0).await;
    let newer = setup.serve("newer.sock", Behaviour::new(&["a", "b"]));
    newer.register().await.unwrap();
    setup.allocatable(2).await;
    assert_eq!(setup.kubelet.violations(), []);
}

#[tokio::test]
async fn a_message_over_4_mib_is_a_violation() {
    let setup = Setup::new().await;
    let plugin = setup.plugin(Behaviour::new(&["a"])).await;
    let id = "x".repeat(5 * 1024 * 1024);
    plugin.behaviour.list.send_replace(vec![device(&id, "Healthy")]);
    setup.allocatable(0).await;
    let expected = Violation::MessageTooLarge { rpc: Rpc::ListAndWatch, resource: GPU.into() };
    assert_eq!(setup.kubelet.violations(), [expected]);
}

async fn slow_allocation(setup: &Setup, change: impl FnOnce(&Plugin)) {
    let behaviour =
        Behaviour { allocate_gate: tokio::sync::Semaphore::new(0), ..Behaviour::new(&["a", "b"]) };
    let plugin = setup.plugin(behaviour).await;
    let pod = setup.kubelet.admit(pod("p").gpus(GPU, 2).command(["/bin/sleep", "60"]));
    plugin.behaviour.called("Allocate", 1).await;
    let before = setup.kubelet.device_list(GPU).unwrap();
    change(&plugin);
    let waited = setup.kubelet.wait_list(GPU, before.at, SOON, |_| true).await;
    waited.unwrap();
    plugin.behaviour.allocate_gate.add_permits(1);
    pod.wait("is settled", SOON, |status| status.admitted || status.phase.is_terminal())
        .await
        .unwrap();
}

#[tokio::test]
async fn an_id_that_vanishes_during_allocate_is_a_violation() {
    let setup = Setup::new().await;
    slow_allocation(&setup, |plugin| {
        plugin.behaviour.list.send_replace(healthy(&["a"]));
    })
    .await;
    let expected = Violation::DeviceVanished {
        resource: GPU.into(),
        device: "b".into(),
        during: Rpc::Allocate,
    };
    assert_eq!(setup.kubelet.violations(), [expected]);
}

#[tokio::test]
async fn an_id_that_turns_unhealthy_during_allocate_is_fine() {
    let setup = Setup::new().await;
    slow_allocation(&setup, |plugin| {
        plugin.behaviour.list.send_replace(unhealthy(&["a", "b"]));
    })
    .await;
    assert_eq!(setup.kubelet.violations(), []);
}

#[tokio::test]
async fn an_offered_id_that_vanishes_during_preferred_allocation_is_a_violation() {
    let setup = Setup::new().await;
    let behaviour =
        Behaviour { preferred_gate: tokio::sync::Semaphore::new(0), ..Behaviour::new(&["a", "b"]) };
    let plugin = setup.plugin(behaviour).await;
    setup.kubelet.admit(pod("p").gpus(GPU, 1).command(["/bin/true"]));
    plugin.behaviour.called("GetPreferredAllocation", 1).await;
    plugin.behaviour.list.send_replace(healthy(&["a"]));
    setup.allocatable(1).await;
    let expected = Violation::DeviceVanished {
        resource: GPU.into(),
        device: "b".into(),
        during: Rpc::PreferredAllocation,
    };
    assert_eq!(setup.kubelet.violations(), [expected]);
    plugin.behaviour.preferred_gate.add_permits(1);
}

#[tokio::test]
async fn a_reused_id_that_has_left_the_list_is_a_violation_at_the_next_allocate() {
    let setup = Setup::new().await;
    let behaviour = Behaviour {
        preferred_gate: tokio::sync::Semaphore::new(1),
        ..Behaviour::new(&["a", "b", "c"])
    };
    let plugin = setup.plugin(behaviour).await;
    *plugin.behaviour.preferred.lock().unwrap() = Some(vec!["a".into()]);
    let pod = pod("p").init_container("init").gpus(GPU, 1).container("app").gpus(GPU, 2);
    let pod = setup.kubelet.admit(pod);
    plugin.behaviour.called("GetPreferredAllocation", 2).await;
    plugin.behaviour.list.send_replace(healthy(&["b", "c"]));
    setup.allocatable(2).await;
    plugin.behaviour.preferred_gate.add_permits(1);
    pod.wait_phase(Phase::Failed, SOON).await.unwrap();
    let vanished = |during: Rpc| Violation::DeviceVanished {
        resource: GPU.into(),
        device: "a".into(),
        during,
    };
    let expected = [vanished(Rpc::PreferredAllocation), vanished(Rpc::Allocate)];
    assert_eq!(setup.kubelet.violations(), expected);
}

#[tokio::test]
async fn a_hung_allocate_is_a_violation_and_holds_up_other_pods() {
    let setup = Setup::with(|options| options.rpc_limit = Duration::from_millis(100)).await;
    let behaviour =
        Behaviour { allocate_gate: tokio::sync::Semaphore::new(0), ..Behaviour::new(&["a", "b"]) };
    let plugin = setup.plugin(behaviour).await;
    setup.kubelet.admit(pod("hung").gpus(GPU, 1).command(["/bin/true"]));
    let other = setup.kubelet.admit(pod("other").command(["/bin/sleep", "60"]));
    wait_until("violation", || !setup.kubelet.violations().is_empty()).await;
    let expected = Violation::SlowRpc {
        rpc: Rpc::Allocate,
        resource: GPU.into(),
        limit: Duration::from_millis(100),
    };
    assert_eq!(setup.kubelet.violations(), [expected]);
    assert!(!other.status().admitted);
    plugin.behaviour.allocate_gate.add_permits(1);
    other.wait("is admitted", SOON, |status| status.admitted).await.unwrap();
}
