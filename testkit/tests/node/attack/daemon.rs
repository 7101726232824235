//! Control daemons that hang, are held by somebody's session, or left things behind.

use std::io::Write as _;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use mpshare_api::{GpuState, GpuStatus};
use mpshare_sim_state::ProcessKind;
use mpshare_testkit::fakekubelet::{Phase, PodHandle};
use mpshare_testkit::simnode::{Role, Setup, SimNode};
use rustix::process::Signal;

use super::{check, check_for, logged, pid_of, signal};
use crate::scene::{
    GPU, PATIENCE, bare, card, client, hold, label, logs, ready, running, supervised, wait_or,
    write_config,
};

/// A session with a card's daemon that stays open until it is dropped.
struct Session(Child);

impl Session {
    fn open(node: &SimNode, pipe: &str) -> Self {
        let mut program = node.program("nvidia-cuda-mps-control");
        program.env("CUDA_MPS_PIPE_DIRECTORY", pipe).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = program.spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(b"get_server_list\n").unwrap();
        Self(child)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn is_ready_for(replicas: u32) -> impl Fn(&GpuStatus) -> bool {
    move |card| {
        card.state == GpuState::Ready && card.generation.contains(&format!("/gpu/{replicas}x"))
    }
}

fn pipe_of(card: &GpuStatus) -> String {
    card.daemon.as_ref().unwrap().pipe_directory.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_stays_open_delays_its_card_and_nothing_else() {
    let node = running(Setup::two_cards(), 2).await;
    let before = ready(&node, 0).await;
    let daemon = before.daemon.as_ref().unwrap().pid;
    let session = Session::open(&node, &pipe_of(&before));
    tokio::time::sleep(Duration::from_millis(200)).await;
    label(&node, 4).await;
    card(&node, 1, "ready at the new size", is_ready_for(4)).await;
    check_for(&node, Duration::from_secs(2), || {
        let status = node.status().unwrap();
        assert!(!is_ready_for(4)(&status.gpus[0]), "{status:#?}");
    })
    .await;
    drop(session);
    let after = card(&node, 0, "ready at the new size", is_ready_for(4)).await;
    assert_eq!(after.daemon.unwrap().pid, daemon);
    node.kubelet().wait_allocatable(GPU, 8, PATIENCE).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_outlasts_all_patience_makes_no_daemon_dead_and_no_held_unit_unhealthy() {
    let mut node = running(Setup::two_cards(), 2).await;
    let pods = [hold(&node, client("a", 1, "1Gi")).await, hold(&node, client("b", 1, "1Gi")).await];
    let before = [ready(&node, 0).await, ready(&node, 1).await];
    let sessions = before.each_ref().map(|card| Session::open(&node, &pipe_of(card)));
    tokio::time::sleep(Duration::from_millis(200)).await;
    node.end_role(Role::Supervisor, Signal::KILL).unwrap();
    node.start_role(Role::Supervisor).unwrap();
    // The supervisor gives a session 15 s to end.
    check_for(&node, Duration::from_millis(16_500), || {
        let status = node.status().unwrap();
        for card in &status.gpus {
            assert_ne!(card.state, GpuState::Fault, "{status:#?}");
        }
        let ids = node.kubelet().device_ids(GPU);
        for pod in &pods {
            for id in pod.devices("c", GPU) {
                assert_eq!(ids[&id], "Healthy", "{}", logs(&node));
            }
        }
    })
    .await;
    drop(sessions);
    for (index, before) in before.iter().enumerate() {
        let after = ready(&node, index).await;
        assert_eq!(after.daemon.unwrap().pid, before.daemon.as_ref().unwrap().pid);
    }
    node.kubelet().wait_allocatable(GPU, 4, PATIENCE).await.unwrap();
    assert!(logged(&node, Role::Supervisor, "") < 60, "{}", logs(&node));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_daemon_holds_up_its_card_only_and_comes_back() {
    let node = running(Setup::two_cards(), 2).await;
    let daemon = ready(&node, 0).await.daemon.unwrap().pid;
    node.stop_process(daemon).await.unwrap();
    label(&node, 4).await;
    card(&node, 1, "ready at the new size", is_ready_for(4)).await;
    let first = Setup::two_cards().cards[0].1;
    check_for(&node, Duration::from_secs(6), || {
        let status = node.status().unwrap();
        assert!(!is_ready_for(4)(&status.gpus[0]), "{status:#?}");
        assert!(super::limits(&node.store().read().unwrap(), first).is_empty());
    })
    .await;
    signal(daemon, Signal::CONT);
    let after = card(&node, 0, "ready at the new size", is_ready_for(4)).await;
    assert_eq!(after.daemon.unwrap().pid, daemon, "{}", logs(&node));
    assert!(logged(&node, Role::Supervisor, "") < 60, "{}", logs(&node));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_former_boot_are_no_daemon() {
    let mut node = bare(Setup::two_cards()).await;
    let uuid = Setup::two_cards().cards[0].1.parse().unwrap();
    let paths = node.mps_root().gpu(&"nvidia.com/gpu".parse().unwrap(), &uuid);
    std::fs::create_dir_all(paths.pipe()).unwrap();
    let own = std::process::id().to_string();
    for name in ["control_lock", "control", "log", "nvidia-cuda-mps-control.pid"] {
        std::fs::write(paths.pipe().join(name), &own).unwrap();
    }
    write_config(&node, 2);
    node.start_role(Role::Supervisor).unwrap();
    let daemon = ready(&node, 0).await.daemon.unwrap();
    assert_ne!(daemon.pid.to_string(), own);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orphaned_server_of_a_dead_daemon_does_not_keep_the_card() {
    let mut node =
        running(Setup { cards: vec![Setup::two_cards().cards[0]], ..Setup::two_cards() }, 2).await;
    let pod = hold(&node, client("a", 1, "1Gi")).await;
    let daemon = ready(&node, 0).await.daemon.unwrap();
    node.end_role(Role::Supervisor, Signal::KILL).unwrap();
    signal(daemon.pid, Signal::KILL);
    node.start_role(Role::Supervisor).unwrap();
    let is_new =
        |card: &GpuStatus| is_ready_for(2)(card) && card.daemon.as_ref().unwrap().pid != daemon.pid;
    card(&node, 0, "ready with a new daemon", is_new).await;
    let state = node.store().read().unwrap();
    let servers = state.processes.iter().filter(|p| p.kind == ProcessKind::MpsServer).count();
    assert_eq!(servers, 1);
    pod.force_delete();
    hold(&node, client("b", 1, "1Gi")).await;
    check(&node);
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_that_reached_a_daemon_but_not_its_server_are_not_taken_for_the_old_ones() {
    let setup = Setup { cards: vec![Setup::two_cards().cards[0]], ..Setup::two_cards() };
    let node = supervised(setup, 2).await;
    let before = ready(&node, 0).await;
    let pipe = pipe_of(&before);
    let default = || control(&node, &pipe, "get_default_device_pinned_mem_limit 0\n");
    // A server that starts takes no limits.
    node.store().update(|state| state.faults.server_hangs_at_start = true).unwrap();
    signal(before.daemon.unwrap().server.unwrap(), Signal::KILL);
    card(&node, 0, "starting", |card| card.state == GpuState::Starting).await;
    write_config(&node, 3);
    wait_or("the default goes down", || logs(&node), || default() == "5G\n").await;
    write_config(&node, 2);
    node.store().update(|state| state.faults.server_hangs_at_start = false).unwrap();
    let listed = control(&node, &pipe, "get_server_list\n");
    signal(listed.trim().parse().unwrap(), Signal::KILL);
    card(&node, 0, "ready at the first size", is_ready_for(2)).await;
    assert_eq!(default(), "7G\n", "{}", logs(&node));
}

/// What the daemon says, asked until it isn't busy with somebody else.
fn control(node: &SimNode, pipe: &str, command: &str) -> String {
    let until = Instant::now() + PATIENCE;
    loop {
        let mut program = node.program("nvidia-cuda-mps-control");
        program.env("CUDA_MPS_PIPE_DIRECTORY", pipe).stderr(Stdio::null());
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // A busy daemon hangs up first.
        drop(child.stdin.take().unwrap().write_all(command.as_bytes()));
        let said = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        if !said.is_empty() {
            return said;
        }
        assert!(Instant::now() < until, "no answer to `{command}`\n{}", logs(node));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_killed_at_any_step_of_a_start_leaves_nothing_half_done() {
    let mut node = bare(Setup::two_cards()).await;
    write_config(&node, 2);
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..15 {
        node.start_role(Role::Supervisor).unwrap();
        tokio::time::sleep(Duration::from_millis(random.u64(0..90))).await;
        node.end_role(Role::Supervisor, Signal::KILL).unwrap();
        // Now and then the daemons die, too.
        if round % 3 == 2 {
            for card in node.status().map(|status| status.gpus).unwrap_or_default() {
                if let Some(daemon) = card.daemon {
                    signal(daemon.pid, Signal::KILL);
                }
            }
        }
    }
    node.start_role(Role::Supervisor).unwrap();
    for index in 0..2 {
        let status = ready(&node, index).await;
        let daemon = status.daemon.unwrap();
        let said = control(&node, &daemon.pipe_directory, "get_default_active_thread_percentage\n");
        assert_eq!(said, "50.0\n", "seed {seed}");
    }
    let servers = || {
        let state = node.store().read().unwrap();
        state.processes.iter().filter(|p| p.kind == ProcessKind::MpsServer).count()
    };
    wait_or("one server per card", || logs(&node), || servers() == 2).await;
    write_config(&node, 1);
    for index in 0..2 {
        card(&node, index, "whole", |card| {
            card.generation.starts_with("exclusive") && card.state == GpuState::Ready
        })
        .await;
        let mode = node.store().read().unwrap().gpus[index].compute_mode;
        assert_eq!(mode, mpshare_sim_state::ComputeMode::Default, "seed {seed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_container_that_comes_from_a_shared_card_keeps_its_daemon() {
    let node = running(Setup::two_cards(), 2).await;
    let pod = mpshare_testkit::fakekubelet::pod("idle").container("c").gpus(GPU, 1);
    let script = "echo up; while [ ! -e go ]; do sleep 0.05; done; \
                  exec cuda-sample --alloc 1Gi --hold forever";
    let pod = node.kubelet().admit(pod.shell(script));
    pod.wait_phase(Phase::Running, PATIENCE).await.unwrap();
    label(&node, 1).await;
    node.kubelet().wait_allocatable(GPU, 2, PATIENCE).await.unwrap();
    check_for(&node, Duration::from_secs(2), || ()).await;
    let pid = pod.status().pids()["c"];
    std::fs::write(format!("/proc/{pid}/cwd/go"), "").unwrap();
    wait_or("it holds its memory", || pod.log("c"), || pod.log("c").contains("holding")).await;
    check(&node);
    let state = node.store().read().unwrap();
    let limit = state.processes.iter().find(|p| p.id.pid.unsigned_abs() == pid).unwrap().limit_mib;
    assert!(matches!(limit, Some(7680 | 16384)), "{limit:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_supervisor_lets_nobody_in_unverified() {
    let node = running(Setup::two_cards(), 2).await;
    let supervisor = pid_of(&node, Role::Supervisor);
    node.stop_process(supervisor).await.unwrap();
    let wide = node.kubelet().admit(client("wide", 2, "10Gi"));
    wait_or("it is granted", || logs(&node), || !wide.devices("c", GPU).is_empty()).await;
    label(&node, 4).await;
    let mut pods = Vec::new();
    for n in 0..6 {
        pods.push(node.kubelet().admit(client(&format!("p{n}"), 1, "1Gi")));
    }
    check_for(&node, Duration::from_secs(2), || {
        assert!(wide.status().pids().is_empty(), "no daemon was ever opened for two units");
    })
    .await;
    signal(supervisor, Signal::CONT);
    let is_up = || wide.log("c").contains("holding");
    wait_or("the wide one starts", || format!("{:?}\n{}", wide.status(), logs(&node)), is_up).await;
    check_for(&node, Duration::from_secs(1), || ()).await;
    let is_settled =
        |pod: &PodHandle| pod.log("c").contains("holding") || pod.status().phase == Phase::Failed;
    wait_or("all run or are refused", || logs(&node), || pods.iter().all(is_settled)).await;
    check(&node);
}
