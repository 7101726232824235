//! What other users may do (facts/mps.md 1.2).

use std::os::unix::process::CommandExt;

use crate::node::{Node, SOMEBODY, is_root, run};

fn somebody_asks(node: &Node, input: &str) -> String {
    let said = run(node.control().uid(SOMEBODY), input);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "`{input}`");
    said.out
}

#[test]
fn fact_1_2_only_the_owner_and_root_change_defaults() {
    if !is_root() {
        return;
    }
    let node = Node::any();
    node.start();
    let refusal = "Insufficient privileges for UID 1234. Control deamon settings can only be \
                   modified by the user started it or by the root user.\n";
    for command in
        ["set_default_active_thread_percentage 10\n", "set_default_device_pinned_mem_limit 0 1G\n"]
    {
        assert_eq!(somebody_asks(&node, command), refusal);
    }
    assert_eq!(somebody_asks(&node, "get_default_active_thread_percentage\n"), "100.0\n");
}

#[test]
fn fact_1_2_others_start_servers_for_themselves_only() {
    if !is_root() {
        return;
    }
    let node = Node::any();
    node.start();
    let refusal = "Insufficient privileges for UID 1234. Only the root user may start server for \
                   another user.\n";
    assert_eq!(somebody_asks(&node, "start_server -uid 0\n"), refusal);
    let missing = "A user id (UID) is required to start a new server\n";
    assert_eq!(somebody_asks(&node, "start_server\n"), missing);
    assert_eq!(somebody_asks(&node, &format!("start_server -uid {SOMEBODY}\n")), "");
}

#[test]
fn fact_1_2_others_shut_no_server_of_another_user_down() {
    let Some(node) = Node::simulated("550.163.01").filter(|_| is_root()) else {
        return;
    };
    node.start();
    node.ask("start_server -uid 0\n");
    let server = node.active_server();
    let refusal = "Insufficient privileges for UID 1234. Only the root user may shutdown another \
                   user's server.\n";
    assert_eq!(somebody_asks(&node, &format!("shutdown_server {server} -f\n")), refusal);
    assert_eq!(node.status(server), "ACTIVE\n");
}

#[test]
fn fact_6_8_quit_without_privilege_is_refused_with_rc_0() {
    if !is_root() {
        return;
    }
    let node = Node::any();
    node.start();
    assert_eq!(somebody_asks(&node, "quit\n"), "Not enough privilege to execute quit command\n");
    assert!(node.daemon().is_some());
}
