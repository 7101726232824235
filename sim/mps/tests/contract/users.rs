//! Several users (facts/mps.md 3).

use std::process::Command;

use mpshare_sim_state::mps::{Hello, attach};
use mpshare_sim_state::wire::Packets;

use crate::node::{Node, SOMEBODY, Said, as_user, is_root, request, run, wait_until};

fn node(driver: &str) -> Option<Node> {
    Node::simulated(driver).filter(|_| is_root())
}

fn uid_of(pid: i32) -> (String, String, String) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_once(':').unwrap().1.trim().to_owned()
    };
    (field("Uid"), field("Gid"), field("Groups"))
}

#[test]
fn fact_1_1_the_server_gets_the_clients_uid_and_keeps_the_daemons_groups() {
    let Some(node) = node("550.163.01") else {
        return;
    };
    node.start();
    node.ask(&format!("start_server -uid {SOMEBODY}\n"));
    let (uid, gid, groups) = uid_of(node.active_server());
    let (_, own_gid, own_groups) = uid_of(node.daemon().unwrap());
    assert_eq!(uid, "1234\t1234\t1234\t1234");
    assert_eq!((gid, groups), (own_gid, own_groups));
}

#[test]
fn fact_3_a_client_of_another_user_waits_until_the_last_client_of_the_present_one_is_gone() {
    let Some(node) = node("550.163.01") else {
        return;
    };
    node.start();
    let first = node.attach().unwrap();
    let pipe = node.pipe();
    let other = as_user(SOMEBODY, move || attach(&pipe, &request()).unwrap());
    wait_until("client", || node.control_log().contains("from user 1234: Server is not ready"));
    assert!(!other.is_finished());
    assert_eq!(node.status(first.server()), "ACTIVE\n");
    let before = first.server();
    drop(first);
    let second = other.join().unwrap();
    assert_ne!(second.server(), before);
    assert!(uid_of(second.server()).0.starts_with("1234"));
}

#[test]
fn fact_3_start_server_for_another_user_waits_its_turn() {
    let Some(node) = node("550.163.01") else {
        return;
    };
    node.start();
    let session = node.attach().unwrap();
    assert_eq!(node.ask(&format!("start_server -uid {SOMEBODY}\n")), "");
    assert_eq!(node.server(), session.server());
    drop(session);
    wait_until("next server", || node.control_log().contains(" for user 1234\n"));
    assert!(uid_of(node.active_server()).0.starts_with("1234"));
}

#[test]
fn fact_6_10_a_queued_client_that_died_still_gets_a_server_for_its_user() {
    let Some(node) = node("550.163.01") else {
        return;
    };
    node.start();
    let first = node.attach().unwrap();
    let control = node.pipe().join("control");
    let dead = as_user(SOMEBODY, move || {
        Packets::connect(&control).unwrap().send(&Hello::Client(request())).unwrap();
    });
    dead.join().unwrap();
    wait_until("client", || node.control_log().contains("from user 1234: Server is not ready"));
    drop(first);
    wait_until("server", || node.control_log().contains(" for user 1234\n"));
}

#[test]
fn fact_3_multi_user_serves_everybody_with_a_server_of_root() {
    let Some(node) = node("555.58.02") else {
        return;
    };
    node.start_with(&["-d", "-multiuser-server"], &[]);
    let first = node.attach().unwrap();
    let pipe = node.pipe();
    let second = as_user(SOMEBODY, move || attach(&pipe, &request()).unwrap()).join().unwrap();
    assert_eq!(first.server(), second.server());
    assert!(!node.control_log().contains("from user 1234"));
    assert!(uid_of(first.server()).0.starts_with('0'));
}

#[test]
fn fact_3_multi_user_on_pascal_refuses_others_with_800() {
    let Some(node) = Node::simulated_with("555.58.02", &["p4"]).filter(|_| is_root()) else {
        return;
    };
    node.start_with(&["-d", "-multiuser-server"], &[]);
    let pipe = node.pipe();
    let other = as_user(SOMEBODY, move || attach(&pipe, &request()).map(drop));
    assert_eq!(other.join().unwrap().unwrap_err().cuda_error(), Some(800));
    assert!(node.attach().is_ok());
}

#[test]
fn fact_1_2_reading_is_open_to_everybody() {
    let Some(node) = node("550.163.01") else {
        return;
    };
    node.start();
    let session = node.attach().unwrap();
    let mut control = node.control();
    std::os::unix::process::CommandExt::uid(&mut control, SOMEBODY);
    let said = run(&mut control, &format!("get_client_list {}\n", session.server()));
    assert_eq!((said.code, said.out), (Some(0), format!("{}\n", session.client())));
}

#[test]
fn fact_3_a_daemon_in_its_own_pid_namespace_sees_its_clients_as_0() {
    let namespace = ["--fork", "--pid"];
    let Some(node) = node("550.163.01").filter(|_| can_unshare(&namespace)) else {
        return;
    };
    let control = node.control();
    let mut unshare = Command::new("unshare");
    unshare.args(namespace).arg(control.get_program()).arg("-f");
    unshare.env_clear().envs(control.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = std::fs::File::create(node.dir().join("out")).unwrap();
    let mut unshare = unshare.stdout(output).spawn().unwrap();
    wait_until("daemon", || node.daemon().is_some());
    node.inject(|faults| faults.server_fails_at_start = true);
    assert_eq!(node.attach().unwrap_err().cuda_error(), Some(805));
    let log = std::fs::read_to_string(node.dir().join("out")).unwrap();
    assert!(log.contains("] NEW CLIENT 0 from user 0: "), "{log}");
    node.ui("quit\n");
    unshare.wait().unwrap();
}

/// Whether namespaces can be made here; if not, says that the test is skipped.
fn can_unshare(arguments: &[&str]) -> bool {
    let tried = Command::new("unshare").args(arguments).arg("true").output();
    let works = tried.is_ok_and(|output| output.status.success());
    if !works {
        println!("skipped: needs namespaces");
    }
    works
}

/// The control program in a user namespace that maps nobody, where that can be made.
fn unmapped(node: &Node) -> Option<Said> {
    let control = node.control();
    let mut command = Command::new("unshare");
    command.arg("--user").arg(control.get_program());
    command.envs(control.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if !can_unshare(&["--user"]) {
        return None;
    }
    Some(run(&mut command, "get_server_list\n"))
}

#[test]
fn fact_1_2_a_peer_in_an_unmapped_user_namespace_is_turned_away() {
    let node = Node::any();
    node.start();
    let Some(said) = unmapped(&node) else {
        return;
    };
    let expected = "Cannot authenticate or connect to MPS control daemon process\n";
    assert_eq!((said.code, said.err.as_str()), (Some(1), expected));
}
