//! Pods that try to get more than their share.

use mpshare_sim_state::{ProcessKind, SimProcess};
use mpshare_testkit::fakekubelet::{PodHandle, pod};
use mpshare_testkit::simnode::{Setup, SimNode};

use crate::scene::{GPU, hold, running};

fn context(node: &SimNode, pod: &PodHandle) -> Option<SimProcess> {
    let pid = pod.status().pids().into_values().next()?;
    let state = node.store().read().unwrap();
    state.processes.into_iter().find(|process| process.id.pid.unsigned_abs() == pid)
}

/// A pod whose program takes all it can get.
async fn greedy(node: &SimNode, name: &str, env: &[(&str, &str)], more: &[&str]) -> PodHandle {
    let command = ["cuda-sample", "--until-oom", "256Mi", "--hold", "forever"];
    let spec = pod(name).container("c").gpus(GPU, 1).command(command.iter().chain(more).copied());
    let spec = env.iter().fold(spec, |spec, (key, value)| spec.env(key, value));
    let pod = hold(node, spec).await;
    assert!(pod.log("c").contains("CUDA_ERROR_OUT_OF_MEMORY"), "{}", pod.log("c"));
    pod
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_raises_or_garbles_its_limit_gets_at_most_the_share() {
    let node = running(Setup::two_cards(), 4).await;
    for (name, value) in
        [("raises", "0=30G"), ("empties", ""), ("zero", "0=0G"), ("garbles", "lots")]
    {
        let env = [
            ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", value),
            ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100"),
        ];
        let pod = greedy(&node, name, &env, &[]).await;
        let process = context(&node, &pod).unwrap();
        let share = if process.gpu.contains("cb1213a3") { 3840 } else { 8192 };
        assert_eq!(process.limit_mib, Some(share), "{name}");
        assert!(process.used_mib <= share, "{name}: {} MiB", process.used_mib);
        assert!(process.percent_tenths <= 250, "{name}: {}", process.percent_tenths);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_loses_the_way_to_its_daemon_gets_nothing() {
    let node = running(Setup::two_cards(), 2).await;
    let command = ["cuda-sample", "--alloc", "1Gi", "--hold", "forever"];
    for value in ["", "/nowhere"] {
        let spec = pod("bypass").container("c").gpus(GPU, 1).command(command);
        let spec = spec.env("CUDA_MPS_PIPE_DIRECTORY", value);
        let neighbour = hold(&node, crate::scene::client("neighbour", 1, "1Gi")).await;
        let pod = node.kubelet().admit(spec);
        crate::scene::wait_or(
            "the bypassing program fails",
            || pod.log("c"),
            || pod.log("c").contains("CUDA_ERROR_DEVICE_UNAVAILABLE"),
        )
        .await;
        let state = node.store().read().unwrap();
        assert!(state.processes.iter().all(|process| process.kind != ProcessKind::Plain));
        assert!(context(&node, &neighbour).is_some_and(|process| process.sticky_error.is_none()));
        pod.force_delete();
        neighbour.force_delete();
        pod.wait_gone(crate::scene::PATIENCE).await.unwrap();
        neighbour.wait_gone(crate::scene::PATIENCE).await.unwrap();
    }
}
