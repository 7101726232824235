//! `mpshare node cleanup`: what it takes away, and what it leaves alone.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use mpshare_sim_state::{ComputeMode, ProcessKind};
use mpshare_testkit::fakekubelet::PodHandle;
use mpshare_testkit::simnode::{Launch, Role, Setup, SimNode};
use rustix::process::{Pid, Signal, kill_process};

use crate::scene::{client, hold, ready, running, supervised};

fn cleanup(node: &SimNode, more: &[&str]) -> Command {
    let mut command = node.program("mpshare");
    command.args(["node", "cleanup", "--mps-root"]).arg(node.mps_root().path());
    command.arg("--proc-root").arg(node.path().join("proc")).args(more);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn code_and_text(output: &Output) -> (i32, String) {
    let text = [output.stdout.as_slice(), &output.stderr].map(String::from_utf8_lossy).concat();
    (output.status.code().unwrap(), text)
}

fn clean(node: &SimNode, more: &[&str]) -> (i32, String) {
    code_and_text(&cleanup(node, more).output().unwrap())
}

fn modes(node: &SimNode) -> Vec<ComputeMode> {
    node.store().read().unwrap().gpus.iter().map(|gpu| gpu.compute_mode).collect()
}

/// Daemons and servers of the node.
fn mps_processes(node: &SimNode) -> usize {
    let is_mps = |pid: &i32| {
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("nvidia-cuda-mps-")
    };
    node.processes().iter().filter(|pid| is_mps(pid)).count()
}

fn assert_clean(node: &SimNode, (code, text): &(i32, String)) {
    assert_eq!(*code, 0, "{text}");
    assert_eq!(modes(node), [ComputeMode::Default; 2], "{text}");
    assert_eq!(mps_processes(node), 0, "{text}");
    assert!(!node.mps_root().path().exists(), "{text}");
}

/// A node whose two cards had daemons, and from which the product has been removed.
async fn abandoned() -> SimNode {
    let mut node = supervised(Setup::two_cards(), 2).await;
    ready(&node, 0).await;
    ready(&node, 1).await;
    node.end_role(Role::Supervisor, Signal::TERM).unwrap();
    node
}

/// A node with a client on one of its cards, and from which the product has been removed.
async fn abandoned_with_client(setup: Setup) -> (SimNode, PodHandle) {
    let mut node = running(setup, 2).await;
    let pod = hold(&node, client("a", 1, "1Gi")).await;
    for role in Role::ALL {
        node.end_role(role, Signal::TERM).unwrap();
    }
    (node, pod)
}

fn client_pid(node: &SimNode) -> Option<i32> {
    let state = node.store().read().unwrap();
    let found = state.processes.iter().find(|p| matches!(p.kind, ProcessKind::MpsClient { .. }));
    found.map(|process| process.id.pid)
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_an_idle_node_and_a_second_time_finds_nothing() {
    let node = abandoned().await;
    let log = node.path().join("termination-log");
    let first = clean(&node, &["--termination-log", log.to_str().unwrap()]);
    assert_clean(&node, &first);
    let said = std::fs::read_to_string(log).unwrap();
    assert!(said.starts_with("`GPU-") && first.1.contains(&said), "{said}");
    for sentence in ["compute mode DEFAULT restored", "directories removed", "(MPS daemon "] {
        assert_eq!(first.1.matches(sentence).count(), 2, "{sentence}: {}", first.1);
    }
    let second = clean(&node, &[]);
    assert_clean(&node, &second);
    assert_eq!(second.1.matches("nothing of mpshare is left").count(), 2, "{}", second.1);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_refuses_while_a_supervisor_or_a_device_plugin_runs_and_names_it() {
    let mut node = running(Setup::two_cards(), 2).await;
    for role in [Role::Supervisor, Role::DevicePlugin] {
        let pid = node.role_pid(role).unwrap();
        for more in [&[][..], &["--dry-run"]] {
            let (code, text) = clean(&node, more);
            assert_eq!(code, 1, "{text}");
            assert!(text.contains(&format!("process {pid} works on this node")), "{text}");
        }
        assert!(node.mps_root().status().exists());
        node.end_role(role, Signal::TERM).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_keeps_its_card_and_the_other_card_is_cleaned() {
    let (node, pod) = abandoned_with_client(Setup::two_cards()).await;
    let pid = client_pid(&node).unwrap();
    let (code, text) = clean(&node, &[]);
    assert_eq!(code, 3, "{text}");
    let uid = pod.spec().uid.clone();
    let sentence = format!("1 client lives on (process {pid} of pod {uid}), and MPS daemon ");
    assert!(text.contains(&sentence), "{sentence}\n{text}");
    assert_eq!(client_pid(&node), Some(pid), "it lives, and is a client still");
    assert_eq!(mps_processes(&node), 2, "one daemon and its server");
    let mut found = modes(&node);
    found.sort_by_key(|mode| *mode == ComputeMode::Default);
    assert_eq!(found, [ComputeMode::ExclusiveProcess, ComputeMode::Default]);
    assert!(node.mps_root().compute_modes().exists(), "what is still to be restored is known");
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    assert_clean(&node, &clean(&node, &["--wait", "20"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn it_waits_for_clients_as_long_as_it_is_told_to() {
    let (node, _pod) = abandoned_with_client(Setup::two_cards()).await;
    let pid = client_pid(&node).unwrap();
    assert_eq!(clean(&node, &["--wait", "1"]).0, 3);
    let waiting = cleanup(&node, &["--wait", "60"]).spawn().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let output = waiting.wait_with_output().unwrap();
    assert_clean(&node, &code_and_text(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rehearsal_says_it_all_and_changes_nothing() {
    let node = abandoned().await;
    let before = mps_processes(&node);
    let (code, text) = clean(&node, &["--dry-run"]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(text.matches("would be cleaned (MPS daemon ").count(), 2, "{text}");
    assert_eq!(mps_processes(&node), before);
    assert_eq!(modes(&node), [ComputeMode::ExclusiveProcess; 2]);
    assert!(node.mps_root().status().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_documents_hinder_nothing_and_a_damaged_journal_counts_as_the_drivers_default() {
    let node = abandoned().await;
    let root = node.mps_root();
    for path in [root.status(), root.allocations(), root.config(), root.compute_modes()] {
        std::fs::write(path, "{ tru").unwrap();
    }
    assert_clean(&node, &clean(&node, &[]));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_journal_the_compute_mode_stays_as_it_is() {
    let node = abandoned().await;
    std::fs::remove_file(node.mps_root().compute_modes()).unwrap();
    std::fs::remove_file(node.mps_root().status()).unwrap();
    let (code, text) = clean(&node, &[]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(modes(&node), [ComputeMode::ExclusiveProcess; 2]);
    assert_eq!(mps_processes(&node), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn daemons_whose_directories_were_removed_are_found_and_their_clients_spared() {
    let (node, _pod) = abandoned_with_client(Setup::two_cards()).await;
    let pid = client_pid(&node).unwrap();
    let journal = std::fs::read(node.mps_root().compute_modes()).unwrap();
    std::fs::remove_dir_all(node.mps_root().path()).unwrap();
    std::fs::create_dir(node.mps_root().path()).unwrap();
    std::fs::write(node.mps_root().compute_modes(), journal).unwrap();
    let (code, text) = clean(&node, &[]);
    assert_eq!(code, 3, "{text}");
    assert!(text.contains(&format!("process {pid} of pod ")), "{text}");
    assert_eq!(client_pid(&node), Some(pid));
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let (code, text) = clean(&node, &["--wait", "20"]);
    assert_eq!((code, mps_processes(&node)), (0, 0), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_of_a_killed_daemon_stay_as_long_as_they_have_clients() {
    let (node, _pod) = abandoned_with_client(Setup::two_cards()).await;
    let pid = client_pid(&node).unwrap();
    for gpu in node.status().unwrap().gpus {
        let daemon = gpu.daemon.unwrap().pid;
        kill_process(Pid::from_raw(daemon).unwrap(), Signal::KILL).unwrap();
    }
    let (code, text) = clean(&node, &[]);
    assert_eq!(code, 3, "{text}");
    assert_eq!(client_pid(&node), Some(pid));
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    assert_clean(&node, &clean(&node, &["--wait", "20"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_daemon_in_a_card_s_directory_is_named_and_left_alone() {
    let node = abandoned().await;
    let paths = {
        let uuid = Setup::two_cards().cards[0].1.parse().unwrap();
        node.mps_root().gpu(&"nvidia.com/gpu".parse().unwrap(), &uuid)
    };
    assert_eq!(clean(&node, &[]).0, 0);
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
    let (code, text) = clean(&node, &[]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains(", no daemon of ours, holds its MPS directory"), "{text}");
    assert_eq!(mps_processes(&node), 1);
    assert!(paths.pipe().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_killed_anywhere_is_finished_by_the_next() {
    for round in 0..8_u32 {
        let node = abandoned().await;
        let mut killed = cleanup(&node, &[]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(4).saturating_mul(round * round));
        end(&mut killed);
        assert_clean(&node, &clean(&node, &[]));
    }
}

fn end(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_at_once_one_cleans_and_the_other_one_does_no_harm() {
    let node = abandoned().await;
    let both = [(); 2].map(|()| cleanup(&node, &[]).spawn().unwrap());
    let codes = both.map(|child| child.wait_with_output().unwrap().status.code().unwrap());
    assert!(codes.contains(&0), "{codes:?}");
    assert_clean(&node, &clean(&node, &[]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_that_starts_after_it_has_a_fresh_node() {
    let mut node = abandoned().await;
    assert_clean(&node, &clean(&node, &[]));
    crate::scene::write_config(&node, 2);
    node.start_role(Role::Supervisor).unwrap();
    ready(&node, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cgroups_of_daemons_on_the_host_go_with_them() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: entering a mount namespace needs root");
        return;
    }
    let setup = Setup {
        // Cards of this test alone: another one looks at cgroups of the same machine.
        cards: vec![
            ("t4", "GPU-c1ea0001-d6a4-be7f-0d2c-8b2f6c3c7a11"),
            ("v100", "GPU-c1ea0002-41d7-6b0e-9c88-27e1d4a0b6f2"),
        ],
        launch: Launch::Host,
        ..Setup::two_cards()
    };
    let (node, _pod) = abandoned_with_client(setup).await;
    let of_cards = || {
        let hierarchies = std::fs::read_dir("/sys/fs/cgroup").unwrap().filter_map(Result::ok);
        let groups = hierarchies.flat_map(|hierarchy| {
            ["GPU-c1ea0001", "GPU-c1ea0002"].map(|it| hierarchy.path().join("mpshare").join(it))
        });
        groups
            .chain(
                ["GPU-c1ea0001", "GPU-c1ea0002"]
                    .map(|it| Path::new("/sys/fs/cgroup/mpshare").join(it)),
            )
            .filter(|group| group.is_dir())
            .count()
    };
    let before = of_cards();
    assert!(before >= 2);
    let on_host = "--launch host --host-mount-namespace /proc/self/ns/mnt";
    let mut arguments: Vec<&str> = on_host.split(' ').collect();
    let (code, text) = clean(&node, &arguments);
    assert_eq!(code, 3, "{text}");
    assert_eq!(of_cards(), before / 2, "the card with a client keeps its cgroups");
    kill_process(Pid::from_raw(client_pid(&node).unwrap()).unwrap(), Signal::KILL).unwrap();
    arguments.extend(["--wait", "20"]);
    assert_clean(&node, &clean(&node, &arguments));
    assert_eq!(of_cards(), 0);
}
