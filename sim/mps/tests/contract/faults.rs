//! FAULT and the injected faults (facts/mps.md 4.1).

use std::time::{Duration, Instant};

use mpshare_sim_state::mps::{SessionStatus, raise_fault};

use crate::node::{Node, T4, wait_until};

#[test]
fn fact_4_1_a_fault_hits_every_client_and_lasts_until_all_have_exited() {
    let Some(node) = Node::simulated("550.163.01") else {
        return;
    };
    node.start();
    let (guilty, innocent) = (node.attach().unwrap(), node.attach().unwrap());
    node.register(&guilty, T4);
    let server = guilty.server();
    raise_fault(&node.store(), server, T4, 700).unwrap();
    assert_eq!(node.status(server), "FAULT\n");
    assert_eq!(innocent.status(), SessionStatus::Faulted(700));
    assert_eq!(node.attach().unwrap_err().cuda_error(), Some(807));
    drop(guilty);
    assert_eq!(node.status(server), "FAULT\n");
    drop(innocent);
    wait_until("ACTIVE", || node.status(server) == "ACTIVE\n");
    assert_eq!(node.attach().unwrap().server(), server);
    let log = node.server_log();
    for text in [
        "Volta MPS: Server is handling a fatal GPU error.",
        "Volta MPS: The following clients have a sticky error set:",
        "Destroy server context on device 0",
        "is INACTIVE",
    ] {
        assert!(log.contains(text), "`{text}` in {log}");
    }
}

#[test]
fn a_fault_that_is_only_switched_on_hits_every_client() {
    let Some(node) = Node::simulated("550.163.01") else {
        return;
    };
    node.start();
    let session = node.attach().unwrap();
    node.register(&session, T4);
    node.inject(|faults| faults.faulted_servers.push(session.server()));
    wait_until("719", || session.error() == Some(719));
    let state = node.store().read().unwrap();
    assert!(state.processes.iter().any(|process| process.sticky_error == Some(719)));
}

#[test]
fn an_ignored_memory_limit_is_accepted_and_not_there() {
    let Some(node) = Node::simulated("550.163.01") else {
        return;
    };
    node.inject(|faults| faults.memory_limit_ignored = true);
    node.start();
    let asked = "set_default_device_pinned_mem_limit 0 1G\nget_default_device_pinned_mem_limit 0\n";
    assert_eq!(node.ask(asked), "");
    assert_eq!(node.attach().unwrap().limit_mib(T4), None);
}

#[test]
fn a_slow_ui_takes_its_time_for_each_command() {
    let Some(node) = Node::simulated("550.163.01") else {
        return;
    };
    node.start();
    node.inject(|faults| faults.ui_delay_ms = 100);
    let began = Instant::now();
    assert_eq!(node.ask("get_server_list\nget_server_list\n"), "");
    assert!(began.elapsed() >= Duration::from_millis(200));
}
