//! What CUDA programs get (facts/mps.md 1.1, 2, 4.1, 4.2, 7).

use std::thread;

use mpshare_sim_state::ProcessKind;
use mpshare_sim_state::mps::{AttachError, AttachRequest, SessionStatus, attach};
use rustix::process::Signal;

use crate::node::{Node, T4, V100, kill, request, wait_until};

fn node() -> Option<Node> {
    Node::simulated("550.163.01")
}

/// The limit in force on the T4 with a server default and a client's variable.
fn limit(server: &str, client: Option<&str>) -> Option<u64> {
    let node = Node::simulated("550.163.01").unwrap();
    node.start();
    node.ask(&format!("set_default_device_pinned_mem_limit 0 {server}\n"));
    let request = AttachRequest { memory_limit: client.map(str::to_owned), ..request() };
    attach(&node.pipe(), &request).unwrap().limit_mib(T4)
}

#[test]
fn fact_1_1_no_daemon_means_without_mps() {
    let Some(node) = node() else {
        return;
    };
    assert!(matches!(node.attach(), Err(AttachError::NoDaemon(_))));
    node.start();
    node.ask("quit\n");
    assert!(node.pipe().join("control").exists());
    let error = node.attach().unwrap_err();
    assert_eq!(error.cuda_error(), None);
}

#[test]
fn fact_2_the_client_gets_the_servers_limit_and_may_only_lower_it() {
    if node().is_none() {
        return;
    }
    assert_eq!(limit("4G", None), Some(4096));
    assert_eq!(limit("4G", Some("0=1000M")), Some(1000));
    assert_eq!(limit("4G", Some("0=8G")), Some(4096));
    assert_eq!(limit("0G", Some("0=1G")), Some(1024));
}

#[test]
fn fact_6_12_an_entry_for_an_unseen_card_drops_every_limit() {
    if node().is_none() {
        return;
    }
    assert_eq!(limit("4G", Some("0=2G,1=4G")), None);
    assert_eq!(limit("4G", Some("4294967296")), Some(4096));
}

#[test]
fn fact_2_the_daemons_variable_reaches_servers_by_inheritance() {
    let Some(node) = node() else {
        return;
    };
    node.start_with(&["-d"], &[("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1G")]);
    assert_eq!(node.attach().unwrap().limit_mib(T4), Some(1024));
}

#[test]
fn fact_2_limits_and_percentages_of_a_running_server_change_for_its_future_clients() {
    let Some(node) = node() else {
        return;
    };
    node.start();
    node.ask("set_default_device_pinned_mem_limit 0 1G\nset_default_active_thread_percentage 50\n");
    let before = node.attach().unwrap();
    let server = before.server();
    node.ask(&format!(
        "set_device_pinned_mem_limit {server} 0 3000M\nset_active_thread_percentage {server} 80\n"
    ));
    let after = node.attach().unwrap();
    assert_eq!((before.limit_mib(T4), before.percent_tenths()), (Some(1024), 500));
    assert_eq!((after.limit_mib(T4), after.percent_tenths()), (Some(3000), 800));
}

#[test]
fn fact_2_the_client_may_only_lower_the_percentage() {
    let Some(node) = node() else {
        return;
    };
    node.start();
    node.ask("set_default_active_thread_percentage 50\n");
    let percent = |value: &str| {
        let request = AttachRequest { thread_percentage: Some(value.to_owned()), ..request() };
        attach(&node.pipe(), &request).unwrap().percent_tenths()
    };
    assert_eq!((percent("25"), percent("75"), percent("x")), (250, 500, 500));
}

#[test]
fn fact_2_the_clients_visible_devices_apply_to_the_renumbered_view() {
    let Some(node) = Node::simulated_with("550.163.01", &["t4", "v100"]) else {
        return;
    };
    node.start();
    let request = AttachRequest {
        visible_devices: Some("1".to_owned()),
        memory_limit: Some("0=1G".to_owned()),
        ..request()
    };
    let session = attach(&node.pipe(), &request).unwrap();
    let seen: Vec<_> = session.devices().iter().map(|device| device.uuid.as_str()).collect();
    assert_eq!((seen, session.limit_mib(V100)), (vec![V100], Some(1024)));
}

#[test]
fn fact_6_16_each_client_leaves_a_line_about_credentials() {
    let Some(node) = node() else {
        return;
    };
    node.start();
    let session = node.attach().unwrap();
    let log = node.control_log();
    assert!(log.contains("] User did not send valid credentials\n"));
    let line = format!(
        "] NEW CLIENT {} from user {}: Server is not ready, push client to pending list\n",
        session.client(),
        rustix::process::geteuid().as_raw()
    );
    assert!(log.contains(&line), "{log}");
    let second = node.attach().unwrap();
    assert!(node.control_log().contains(": Server already exists\n"));
    assert_eq!(second.server(), session.server());
}

#[test]
fn fact_4_2_a_client_of_a_hanging_server_waits_and_gets_805_when_the_daemon_dies() {
    let Some(node) = node() else {
        return;
    };
    node.inject(|faults| faults.server_hangs_at_start = true);
    node.start();
    let pipe = node.pipe();
    let client = thread::spawn(move || attach(&pipe, &request()).map(drop));
    wait_until("client", || node.control_log().contains("] NEW CLIENT "));
    assert!(!client.is_finished());
    kill(node.daemon().unwrap(), Signal::KILL);
    let error = client.join().unwrap().unwrap_err();
    assert_eq!(error.cuda_error(), Some(805));
}

#[test]
fn fact_4_2_a_client_whose_server_dies_gets_806_for_ever() {
    let Some(node) = node() else {
        return;
    };
    node.start();
    let session = node.attach().unwrap();
    assert_eq!(session.status(), SessionStatus::Live);
    kill(session.server(), Signal::KILL);
    wait_until("806", || session.error() == Some(806));
    assert_ne!(node.attach().unwrap().server(), session.server());
    assert_eq!(session.error(), Some(806));
}

#[test]
fn fact_4_1_terminate_client_answers_0_and_the_victim_gets_810() {
    let Some(node) = node() else {
        return;
    };
    node.start();
    let session = node.attach().unwrap();
    node.register(&session, T4);
    let (server, me) = (session.server(), session.client());
    assert_eq!(node.ask(&format!("terminate_client {server} {me}\n")), "0\n");
    assert_eq!(session.error(), Some(810));
    assert_eq!(node.ask(&format!("get_client_list {server}\n")), "");
    let clients = node.store().read().unwrap().processes;
    let freed = clients.iter().all(|process| process.kind == ProcessKind::MpsServer);
    assert!(freed, "{clients:?}");
    assert_eq!(node.ask(&format!("terminate_client {server} {me}\n")), "1\n");
    assert_eq!(node.status(server), "ACTIVE\n");
}
