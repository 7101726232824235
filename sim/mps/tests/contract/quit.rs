//! `quit` and what stays (facts/mps.md 4.3).

use std::os::unix::fs::FileTypeExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use mpshare_sim_state::ProcId;
use mpshare_sim_state::mps::SessionStatus;

use crate::node::{Node, wait_until};

#[test]
fn fact_4_3_quit_ends_the_daemon_and_leaves_sockets_and_lock() {
    let Some(node) = Node::of("550.163.01") else {
        return;
    };
    node.start();
    let daemon = ProcId::of(node.daemon().unwrap()).unwrap();
    assert_eq!(node.ask("quit\n"), "");
    assert!(!daemon.is_alive() && node.lock_is_free());
    let file = |name: &str| node.pipe().join(name);
    assert!(file("control").metadata().unwrap().file_type().is_socket());
    assert!(file("control_privileged").exists() && file("control_lock").exists());
    assert!(!file("log").exists() && !file("nvidia-cuda-mps-control.pid").exists());
    assert!(node.control_log().ends_with("] Exit with status 0\n"));
    assert_eq!(node.ui("get_server_list\n").code, Some(1));
}

#[test]
fn fact_4_3_quit_with_a_live_client_blocks_and_holds_the_ui() {
    let Some(node) = Node::simulated("550.163.01") else {
        return;
    };
    node.start();
    let session = node.attach().unwrap();
    let mut control = node.control();
    let mut quit = control.stdin(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut quit.stdin.take().unwrap(), b"quit\n").unwrap();
    wait_until("quit", || node.control_log().contains("quit command issued"));
    let said = node.ui("get_server_list\n");
    assert!(said.out.is_empty() && said.err.len() + said.out.len() < 60, "{said:?}");
    assert_eq!(quit.try_wait().unwrap(), None);
    assert!(node.pipe().join("nvidia-cuda-mps-control.pid").exists());
    assert_eq!(session.status(), SessionStatus::Live);
    drop(session);
    assert_eq!(quit.wait().unwrap().code(), Some(0));
    assert!(node.lock_is_free());
}

#[test]
fn fact_4_3_quit_t_forces_the_server_out_and_the_ui_gets_1() {
    let Some(node) = Node::simulated("550.163.01") else {
        return;
    };
    node.start();
    let session = node.attach().unwrap();
    let began = Instant::now();
    let said = node.ui("quit -t 1\n");
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""));
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert!(node.control_log().contains("] quit command issued with timeout of 1\n"));
    assert!(node.control_log().contains("] Force shutting down server\n"));
    wait_until("806", || session.error() == Some(806));
    assert!(node.lock_is_free());
}

#[test]
fn fact_4_3_quit_and_start_at_once_is_fine() {
    let node = Node::any();
    for _ in 0..20 {
        node.start();
        assert_eq!(node.ask("quit\n"), "");
    }
}

#[test]
fn fact_4_3_after_a_failed_start_the_daemon_exits_with_status_1() {
    let Some(node) = Node::simulated("550.163.01") else {
        return;
    };
    node.inject(|faults| faults.server_fails_at_start = true);
    node.start();
    node.ask_for_server();
    wait_until("failed start", || node.control_log().contains("exited with status 1"));
    node.ui("quit\n");
    assert!(node.lock_is_free());
    assert!(node.control_log().ends_with("] Exit with status 1\n"));
}

#[test]
fn fact_4_3_the_ui_code_of_quit_after_a_failed_start_is_not_to_be_relied_on() {
    let mut ones = 0;
    for seed in 0..30 {
        let Some(node) = Node::simulated("550.163.01") else {
            return;
        };
        node.inject(|faults| faults.server_fails_at_start = true);
        node.start_with(&["-d"], &[("MPSHARE_SIM_MPS_SEED", &seed.to_string())]);
        node.ask_for_server();
        wait_until("failed start", || node.control_log().contains("exited with status 1"));
        ones += node.ui("quit\n").code.unwrap();
    }
    assert!((1..20).contains(&ones), "{ones} of 30");
}
