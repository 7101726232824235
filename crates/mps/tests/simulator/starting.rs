//! Starting and adopting.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::sync::Arc;

use mpshare_core::VersionProfile;
use mpshare_mps::procfs::parse_stat;
use mpshare_mps::{
    ControlDaemon as _, DaemonFault, LaunchError, Proc, ProcessDaemon, ProcessHandle, ProcessId,
};
use mpshare_sim_state::mps::{AttachRequest, attach};

use super::node::{GPU, Node, fault, limits, me, patience, script, site, until};

/// Process group and session of a process.
fn group_and_session(process: ProcessId) -> (i32, i32) {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    assert!(parse_stat(&stat).is_some());
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let mut fields = fields.split_ascii_whitespace().skip(2);
    let mut next = || fields.next().unwrap().parse().unwrap();
    (next(), next())
}

fn kill(process: ProcessId) {
    let handle = ProcessHandle::open_exact(&Proc::default(), process);
    let handle = handle.unwrap().expect("it lives");
    handle.kill().unwrap();
    until("it is gone", || handle.wait(std::time::Instant::now()).unwrap().then_some(()));
}

#[test]
fn a_started_daemon_holds_its_lock_with_its_limits_in_force() {
    let node = Node::new();
    let process = node.daemon.start(limits(7680, 500)).unwrap();
    assert_eq!(node.daemon.holder().unwrap(), Some(process));
    let defaults = node.daemon.defaults().unwrap();
    assert!(defaults.shows(limits(7680, 500)), "{defaults}");
    assert!(!defaults.shows(limits(7680, 501)));
}

#[test]
fn a_started_daemon_lives_apart_from_its_starter() {
    let node = Node::new();
    let process = node.daemon.start(limits(512, 1000)).unwrap();
    let stat = Proc::default().stat(process.pid).unwrap().unwrap();
    assert_ne!(stat.parent, Some(me()));
    let mine = group_and_session(Proc::default().identify(me()).unwrap().unwrap());
    let its = group_and_session(process);
    assert_ne!(mine.0, its.0);
    assert_ne!(mine.1, its.1);
}

#[test]
fn the_percentage_is_there_from_the_first_moment() {
    let node = Node::new();
    let process = node.daemon.start(limits(512, 125)).unwrap();
    let environment = Proc::default().environment(process.pid).unwrap().unwrap();
    assert_eq!(environment.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), Some("12.5".into()));
    assert_eq!(environment.get("CUDA_VISIBLE_DEVICES"), Some(GPU.into()));
}

#[test]
fn a_running_daemon_is_not_started_again() {
    let node = Node::new();
    let process = node.daemon.start(limits(512, 1000)).unwrap();
    let again = fault(node.daemon.start(limits(512, 1000)));
    assert!(matches!(again, DaemonFault::AlreadyRunning(pid) if pid == process.pid));
}

#[test]
fn another_supervisor_adopts_what_runs() {
    let node = Node::new();
    assert_eq!(node.daemon.adopt().unwrap(), None);
    let process = node.daemon.start(limits(7680, 500)).unwrap();
    let second = ProcessDaemon::new(node.site(), Arc::new(node.launcher()), VersionProfile::R555);
    let adopted = second.adopt().unwrap().expect("it lives");
    assert_eq!(adopted.process, process);
    assert!(adopted.defaults.shows(limits(7680, 500)));
}

#[test]
fn a_daemon_of_another_card_is_foreign_and_left_alone() {
    let node = Node::new();
    let process = node.daemon.start(limits(512, 1000)).unwrap();
    let other = site(node.dir.path(), "GPU-00000001");
    let other = ProcessDaemon::new(other, Arc::new(node.launcher()), VersionProfile::R555)
        .with_patience(patience());
    for foreign in
        [fault(other.adopt()), fault(other.quit(std::time::Duration::ZERO)), fault(other.kill())]
    {
        assert!(
            matches!(&foreign, DaemonFault::Foreign { found, .. } if found.contains(GPU)),
            "{foreign}"
        );
    }
    assert_eq!(node.daemon.holder().unwrap(), Some(process));
}

#[test]
fn who_holds_the_pipe_directory_of_a_dead_daemon_does_not_reach_the_next_one() {
    let node = Node::new();
    let first = node.daemon.start(limits(512, 1000)).unwrap();
    let held = File::open(node.pipe()).unwrap();
    let held_path = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
    drop(attach(&held_path, &AttachRequest::default()).expect("it is the live directory"));
    kill(first);
    node.daemon.start(limits(512, 1000)).unwrap();
    attach(&held_path, &AttachRequest::default()).expect_err("it is the old directory");
    drop(node.client());
}

#[test]
fn a_stale_pid_file_deceives_nobody() {
    let node = Node::new();
    let first = node.daemon.start(limits(512, 1000)).unwrap();
    kill(first);
    let file = node.pipe().join("nvidia-cuda-mps-control.pid");
    fs::write(&file, format!("{}", me())).unwrap();
    assert_eq!(node.daemon.holder().unwrap(), None);
    assert_eq!(node.daemon.adopt().unwrap(), None);
    let second = node.daemon.start(limits(512, 1000)).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), second.to_string());
}

#[test]
fn a_server_that_outlived_its_daemon_is_killed_before_the_next_start() {
    let node = Node::new();
    let first = node.daemon.start(limits(512, 1000)).unwrap();
    let _client = node.client();
    let server = node.server().pid;
    assert_eq!(node.daemon.remove_orphans().unwrap(), []);
    // Held back, so that it can't leave by itself when its daemon goes.
    let stopped = rustix::process::Pid::from_raw(server.get()).unwrap();
    rustix::process::kill_process(stopped, rustix::process::Signal::STOP).unwrap();
    kill(first);
    node.daemon.start(limits(512, 1000)).unwrap();
    assert_eq!(Proc::default().identify(server).unwrap(), None);
    drop(node.client());
}

#[test]
fn a_daemon_whose_limits_do_not_take_hold_is_not_left_running() {
    let node = Node::new();
    node.fault(|faults| faults.memory_limit_ignored = true);
    let failed = fault(node.daemon.start(limits(7680, 500)));
    assert!(
        matches!(&failed, DaemonFault::NotApplied { found, .. } if found.memory.is_none()),
        "{failed}"
    );
    assert_eq!(node.daemon.holder().unwrap(), None);
}

#[test]
fn what_the_program_says_about_a_failed_start_is_told() {
    let node = Node::new();
    script(
        &node.bin().join("nvidia-cuda-mps-control"),
        "echo An instance of this daemon is already running; exit 1",
    );
    let failed = node.daemon.start(limits(512, 1000)).unwrap_err();
    assert!(failed.to_string().contains(GPU), "{failed}");
    assert!(failed.to_string().contains(&node.pipe().display().to_string()));
    let DaemonFault::Launch(LaunchError::Failed { message, .. }) = *failed.fault else {
        panic!("{failed}");
    };
    assert_eq!(message, "An instance of this daemon is already running");
}

#[test]
fn a_program_that_hangs_at_the_start_is_killed_at_the_deadline() {
    let node = Node::new();
    script(&node.bin().join("nvidia-cuda-mps-control"), "exec sleep 600");
    let hasty =
        mpshare_mps::Patience { start: std::time::Duration::from_millis(200), ..patience() };
    let failed = fault(node.daemon.clone().with_patience(hasty).start(limits(512, 1000)));
    assert!(matches!(failed, DaemonFault::Launch(LaunchError::TimedOut { .. })), "{failed}");
}

#[test]
fn every_known_driver_starts_and_answers() {
    for (version, profile) in [
        ("535.161.07", VersionProfile::R535),
        ("550.163.01", VersionProfile::R550),
        ("590.44", VersionProfile::R590),
        ("615.71.09", VersionProfile::R615),
    ] {
        let node = Node::of_driver(version, profile);
        node.daemon.start(limits(1025, 333)).unwrap();
        let _client = node.client();
        let server = node.server();
        assert_eq!(server.status.is_some(), profile.has_server_status(), "{version}");
        assert_eq!(node.daemon.clients(server.pid).unwrap(), [me()], "{version}");
        node.daemon.apply(limits(2048, 500)).unwrap();
    }
}

#[test]
fn the_server_of_a_live_daemon_whose_directory_was_removed_is_no_orphan() {
    let node = Node::new();
    let daemon = node.daemon.start(limits(7680, 500)).unwrap();
    let _client = node.client();
    let server = node.server().pid;
    fs::remove_dir_all(node.pipe()).unwrap();
    assert_eq!(node.daemon.holder().unwrap(), None);
    assert_eq!(node.daemon.remove_orphans().unwrap(), []);
    assert!(Proc::default().identify(server).unwrap().is_some());
    kill(daemon);
    assert_eq!(node.daemon.remove_orphans().unwrap(), [server]);
}
