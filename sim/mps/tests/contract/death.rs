//! Deaths of the daemon (facts/mps.md 4.2).

use std::fs;

use mpshare_sim_state::ProcId;
use mpshare_sim_state::mps::SessionStatus;
use rustix::process::Signal;

use crate::node::{Node, kill, wait_until};

#[test]
fn fact_4_2_signals_kill_the_daemon_at_once_and_all_files_stay() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::KILL]
    {
        let Some(node) = Node::of("550.163.01") else {
            return;
        };
        node.start_heeding_signals();
        let daemon = node.daemon().unwrap();
        let log = node.control_log();
        let process = ProcId::of(daemon).unwrap();
        kill(daemon, signal);
        wait_until("death", || !process.is_alive());
        assert_eq!(fs::read_dir(node.pipe()).unwrap().count(), 5, "{signal:?}");
        assert!(node.control_log().lines().count() <= log.lines().count() + 2, "{signal:?}");
        wait_until("free lock", || node.lock_is_free());
        assert_eq!(node.ui("get_server_list\n").code, Some(1));
        node.start();
        assert_eq!(node.ask("get_default_active_thread_percentage\n"), "100.0\n");
    }
}

#[test]
fn fact_4_2_sigpipe_is_ignored() {
    let node = Node::any();
    node.start();
    kill(node.daemon().unwrap(), Signal::PIPE);
    assert_eq!(node.ask("get_default_active_thread_percentage\n"), "100.0\n");
}

#[test]
fn fact_4_2_defaults_die_with_the_daemon() {
    let node = Node::any();
    node.start();
    node.ask("set_default_active_thread_percentage 10\n");
    let process = ProcId::of(node.daemon().unwrap()).unwrap();
    kill(process.pid, Signal::KILL);
    wait_until("death", || !process.is_alive() && node.lock_is_free());
    node.start();
    assert_eq!(node.ask("get_default_active_thread_percentage\n"), "100.0\n");
}

#[test]
fn fact_4_2_a_server_outlives_its_daemon_and_the_next_one_does_not_know_it() {
    let Some(node) = Node::simulated("550.163.01") else {
        return;
    };
    node.start();
    let session = node.attach().unwrap();
    let orphan = ProcId::of(session.server()).unwrap();
    let daemon = ProcId::of(node.daemon().unwrap()).unwrap();
    kill(daemon.pid, Signal::KILL);
    wait_until("death", || !daemon.is_alive() && node.lock_is_free());
    node.start();
    assert_eq!(node.ask("get_server_list\n"), "");
    assert!(orphan.is_alive());
    assert_eq!(session.status(), SessionStatus::Live);
    let environment = fs::read(format!("/proc/{}/environ", orphan.pid)).unwrap();
    let pipe = format!("CUDA_MPS_PIPE_DIRECTORY={}\0", node.pipe().display());
    assert!(String::from_utf8(environment).unwrap().contains(&pipe));
}

#[test]
fn fact_4_2_an_orphan_blocks_the_next_server_on_an_exclusive_card() {
    let Some(node) = Node::simulated("550.163.01") else {
        return;
    };
    let exclusive = mpshare_sim_state::ComputeMode::ExclusiveProcess;
    node.store().update(|state| state.gpus[0].compute_mode = exclusive).unwrap();
    node.start();
    let orphan = node.attach().unwrap();
    let daemon = ProcId::of(node.daemon().unwrap()).unwrap();
    kill(daemon.pid, Signal::KILL);
    wait_until("death", || !daemon.is_alive() && node.lock_is_free());
    node.start();
    assert_eq!(node.attach().unwrap_err().cuda_error(), Some(805));
    kill(orphan.server(), Signal::KILL);
    wait_until("server", || node.attach().is_ok());
}

#[test]
fn fact_1_1_a_truncated_log_goes_on_from_its_start() {
    let node = Node::any();
    node.start();
    fs::write(node.log().join("control.log"), "").unwrap();
    node.ask("get_server_list\n");
    let log = node.control_log();
    assert!(log.starts_with('[') && log.contains("] NEW UI\n"), "{log:?}");
}
