//! The supervisor alone on simulated cards.

use std::process::Stdio;

use mpshare_api::GpuState;
use mpshare_sim_state::{ComputeMode, Health, SimState};
use mpshare_testkit::simnode::{Role, Setup, SimNode};
use rustix::process::{Pid, Signal, kill_process};

use crate::scene::{card, ready, supervised, wait, write_config};

fn change(node: &SimNode, change: impl FnOnce(&mut SimState)) {
    node.store().update(change).unwrap();
}

fn mode(node: &SimNode, index: usize) -> ComputeMode {
    node.store().read().unwrap().gpus[index].compute_mode
}

fn control(node: &SimNode, pipe: &str, command: &str) -> String {
    let mut program = node.program("nvidia-cuda-mps-control");
    program.env("CUDA_MPS_PIPE_DIRECTORY", pipe).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = program.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), command.as_bytes()).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_card_gets_a_daemon_of_its_own_with_verified_limits() {
    let node = supervised(Setup::two_cards(), 2).await;
    let mut pids = Vec::new();
    for (index, mib) in [(0, 7680), (1, 16384)] {
        let status = ready(&node, index).await;
        let daemon = status.daemon.unwrap();
        let limits = daemon.limits.unwrap();
        assert_eq!((limits.memory_mib, limits.percent_tenths), (mib, 500));
        let said = control(&node, &daemon.pipe_directory, "get_default_active_thread_percentage\n");
        assert_eq!(said, "50.0\n");
        assert_eq!(mode(&node, index), ComputeMode::ExclusiveProcess);
        pids.push(daemon.pid);
    }
    assert_ne!(pids[0], pids[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_supervisor_is_followed_by_one_that_adopts() {
    let mut node = supervised(Setup::two_cards(), 2).await;
    let before = ready(&node, 0).await.daemon.unwrap();
    node.end_role(Role::Supervisor, Signal::KILL).unwrap();
    std::fs::remove_file(node.mps_root().status()).unwrap();
    node.start_role(Role::Supervisor).unwrap();
    assert_eq!(ready(&node, 0).await.daemon.unwrap().pid, before.pid);
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_that_somebody_changed_while_no_supervisor_ran_are_set_again() {
    let mut node = supervised(Setup::two_cards(), 2).await;
    let pipe = ready(&node, 0).await.daemon.unwrap().pipe_directory;
    node.end_role(Role::Supervisor, Signal::KILL).unwrap();
    control(&node, &pipe, "set_default_device_pinned_mem_limit 0 0G\n");
    std::fs::remove_file(node.mps_root().status()).unwrap();
    node.start_role(Role::Supervisor).unwrap();
    ready(&node, 0).await;
    assert_eq!(control(&node, &pipe, "get_default_device_pinned_mem_limit 0\n"), "7G\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_daemon_is_noticed_and_replaced() {
    let node = supervised(Setup::two_cards(), 2).await;
    let pid = ready(&node, 0).await.daemon.unwrap().pid;
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let is_new = |card: &mpshare_api::GpuStatus| {
        card.state == GpuState::Ready && card.daemon.as_ref().is_some_and(|d| d.pid != pid)
    };
    card(&node, 0, "ready with a new daemon", is_new).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_replica_ends_idle_daemons_and_restores_the_compute_mode() {
    let node = supervised(Setup::two_cards(), 2).await;
    ready(&node, 0).await;
    write_config(&node, 1);
    let is_whole = |card: &mpshare_api::GpuStatus| {
        card.state == GpuState::Ready && card.generation == "exclusive/nvidia.com/gpu"
    };
    let status = card(&node, 0, "ready as a whole card", is_whole).await;
    assert_eq!(status.daemon, None);
    assert_eq!(mode(&node, 0), ComputeMode::Default);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_does_not_take_hold_keeps_the_card_from_being_ready() {
    let node = crate::scene::bare(Setup::two_cards()).await;
    change(&node, |state| state.faults.memory_limit_ignored = true);
    write_config(&node, 2);
    let mut node = node;
    node.start_role(Role::Supervisor).unwrap();
    let status = card(&node, 0, "in fault", |card| card.state == GpuState::Fault).await;
    let reason = status.reason.unwrap();
    assert_eq!(reason.code, "LimitMismatch");
    assert!(reason.message.contains("7680M and 50.0 % were set"), "{}", reason.message);
    change(&node, |state| state.faults.memory_limit_ignored = false);
    ready(&node, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_to_set_the_compute_mode_no_daemon_is_started() {
    let mut node = crate::scene::bare(Setup::two_cards()).await;
    change(&node, |state| state.faults.compute_mode_denied = true);
    write_config(&node, 2);
    node.start_role(Role::Supervisor).unwrap();
    let status = card(&node, 0, "in fault", |card| card.state == GpuState::Fault).await;
    assert_eq!(status.reason.unwrap().code, "ComputeModeDenied");
    assert_eq!(status.daemon, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_card_is_absent_and_the_other_one_works() {
    let node = supervised(Setup::two_cards(), 2).await;
    ready(&node, 0).await;
    change(&node, |state| state.gpus[0].health = Health::Lost);
    card(&node, 0, "absent", |card| card.state == GpuState::Absent).await;
    ready(&node, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_comes_up_late_is_waited_for_and_said() {
    let mut node = crate::scene::bare(Setup::two_cards()).await;
    change(&node, |state| state.faults.driver_not_loaded = true);
    write_config(&node, 2);
    node.start_role(Role::Supervisor).unwrap();
    let code = || node.status().and_then(|status| Some(status.reasons.first()?.code.clone()));
    wait("the reason is told", || code().as_deref() == Some("DriverUnavailable")).await;
    change(&node, |state| state.faults.driver_not_loaded = false);
    ready(&node, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_daemon_in_the_directory_is_named_and_left_alone() {
    let mut node = crate::scene::bare(Setup::two_cards()).await;
    let uuid = Setup::two_cards().cards[0].1.parse().unwrap();
    let paths = node.mps_root().gpu(&"nvidia.com/gpu".parse().unwrap(), &uuid);
    std::fs::create_dir_all(paths.pipe()).unwrap();
    let started = node
        .program("nvidia-cuda-mps-control")
        .arg("-d")
        // No card of another test's node.
        .env("CUDA_VISIBLE_DEVICES", "GPU-f0e3")
        .env("CUDA_MPS_PIPE_DIRECTORY", paths.pipe())
        .env("CUDA_MPS_LOG_DIRECTORY", paths.log())
        .status()
        .unwrap();
    assert!(started.success());
    write_config(&node, 2);
    node.start_role(Role::Supervisor).unwrap();
    let is_refused = |card: &mpshare_api::GpuStatus| {
        card.reason.as_ref().is_some_and(|reason| reason.code == "ForeignDaemon")
    };
    let status = card(&node, 0, "refused", is_refused).await;
    assert_ne!(status.state, GpuState::Ready);
    let pipe = paths.pipe().display().to_string();
    assert_eq!(control(&node, &pipe, "get_default_active_thread_percentage\n"), "100.0\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_starts_with_other_limits_puts_its_card_into_fault_until_it_has_the_right_ones()
 {
    let node = supervised(Setup::two_cards(), 2).await;
    let daemon = ready(&node, 0).await.daemon.unwrap();
    // The daemon shows both as `7G`; only the server's log tells them apart, since nobody can hear
    // any more what is said to the daemon.
    let pipe = &daemon.pipe_directory;
    let log = std::path::Path::new(pipe).with_file_name("log").join("control.log");
    std::fs::remove_file(log).unwrap();
    control(&node, pipe, "set_default_device_pinned_mem_limit 0 7200M\n");
    control(&node, pipe, "set_default_active_thread_percentage 90\n");
    let server = Pid::from_raw(daemon.server.unwrap()).unwrap();
    kill_process(server, Signal::KILL).unwrap();
    let is_told = |card: &mpshare_api::GpuStatus| {
        card.reason.as_ref().is_some_and(|reason| reason.code == "LimitMismatch")
    };
    let status = card(&node, 0, "told to have other limits", is_told).await;
    assert_eq!(status.state, GpuState::Fault);
    let said = status.reason.unwrap().message;
    assert!(said.contains("8053063680 bytes") && said.contains("7549747200 bytes"), "{said}");
    // Nobody is its client, so nothing has to end first.
    ready(&node, 0).await;
    assert_eq!(control(&node, pipe, "get_default_active_thread_percentage\n"), "50.0\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_daemon_died_with_a_former_config_does_not_keep_the_card() {
    let mut node = supervised(Setup::two_cards(), 2).await;
    let mut daemons = Vec::new();
    for index in [0, 1] {
        daemons.push(ready(&node, index).await.daemon.unwrap());
    }
    node.end_role(Role::Supervisor, Signal::KILL).unwrap();
    for daemon in &daemons {
        kill_process(Pid::from_raw(daemon.pid).unwrap(), Signal::KILL).unwrap();
    }
    std::fs::remove_file(node.mps_root().status()).unwrap();
    write_config(&node, 1);
    node.start_role(Role::Supervisor).unwrap();
    for index in [0, 1] {
        ready(&node, index).await;
        assert_eq!(mode(&node, index), ComputeMode::Default);
    }
    let servers: Vec<i32> = daemons.iter().filter_map(|daemon| daemon.server).collect();
    assert_eq!(servers.len(), 2);
    let state = node.store().read().unwrap();
    let left = state.processes.iter().filter(|process| servers.contains(&process.id.pid));
    assert_eq!(left.count(), 0);
}
