//! Daemons that are launched on the host, as a supervisor in a pod does it.

use std::path::Path;

use mpshare_sim_state::ProcessKind;
use mpshare_testkit::simnode::{Launch, Role, Setup};
use rustix::process::Signal;

use crate::scene::{client, hold, ready, running};

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_on_the_host_has_its_own_cgroup_and_shared_memory_and_is_adopted() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: entering a mount namespace needs root");
        return;
    }
    let mut node = running(Setup { launch: Launch::Host, ..Setup::two_cards() }, 2).await;
    let pid = ready(&node, 0).await.daemon.unwrap().pid;
    let proc = Path::new("/proc").join(pid.to_string());
    let cgroup = std::fs::read_to_string(proc.join("cgroup")).unwrap();
    assert!(cgroup.lines().any(|line| line.ends_with("/mpshare/GPU-cb1213a3")), "{cgroup}");
    let mounts = std::fs::read_to_string(proc.join("mountinfo")).unwrap();
    let of_card = mounts
        .lines()
        .find(|line| line.contains(" /dev/shm ") && line.contains("GPU-cb1213a3/shm"));
    assert!(of_card.is_some(), "{mounts}");
    let pod = hold(&node, client("a", 1, "1Gi")).await;
    let state = node.store().read().unwrap();
    let clients =
        state.processes.iter().filter(|p| matches!(p.kind, ProcessKind::MpsClient { .. }));
    assert_eq!(clients.count(), 1, "the client found its server's shared memory");
    node.end_role(Role::Supervisor, Signal::KILL).unwrap();
    std::fs::remove_file(node.mps_root().status()).unwrap();
    node.start_role(Role::Supervisor).unwrap();
    assert_eq!(ready(&node, 0).await.daemon.unwrap().pid, pid);
    assert!(!pod.status().pids().is_empty());
    drop(node);
    remove_cgroups();
}

/// The node's processes have ended; empty cgroups go by `rmdir`, the inner ones first.
fn remove_cgroups() {
    for hierarchy in std::fs::read_dir("/sys/fs/cgroup").unwrap().filter_map(Result::ok) {
        let all = hierarchy.path().join("mpshare");
        for (_, uuid) in Setup::two_cards().cards {
            drop(std::fs::remove_dir(all.join(&uuid[..12])));
        }
        drop(std::fs::remove_dir(all));
    }
}
