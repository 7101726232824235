//! Servers and their clients.

use mpshare_core::{Memory, VersionProfile};
use mpshare_mps::{ControlDaemon as _, DaemonFault, ServerStatus, log};
use mpshare_sim_state::mps::{AttachRequest, SessionStatus, attach, raise_fault};
use rustix::process::Uid;
use rustix::thread::set_thread_uid;

use super::node::{GPU, Node, fault, limits, me, until};

#[test]
fn a_daemon_without_clients_has_no_server() {
    let node = Node::new();
    node.daemon.start(limits(512, 1000)).unwrap();
    assert_eq!(node.daemon.servers().unwrap(), []);
    let nobody = fault(node.daemon.clients(me()));
    assert!(matches!(nobody, DaemonFault::NoSuchServer(pid) if pid == me()));
}

#[test]
fn a_server_is_started_before_any_client_and_serves_the_first_one() {
    let node = Node::new();
    node.daemon.start(limits(512, 1000)).unwrap();
    node.daemon.start_server().unwrap();
    let server = until("it serves", || {
        let server = node.daemon.servers().unwrap().pop()?;
        (server.status == Some(ServerStatus::Active)).then_some(server.pid)
    });
    assert_eq!(node.daemon.clients(server).unwrap(), []);
    let client = node.client();
    assert_eq!(client.server(), server.get());
    assert_eq!(client.limit_mib(GPU), Some(512));
}

#[test]
fn a_client_gets_the_limits_and_is_listed() {
    let node = Node::new();
    node.daemon.start(limits(7680, 500)).unwrap();
    let client = node.client();
    assert_eq!(client.limit_mib(GPU), Some(7680));
    assert_eq!(client.percent_tenths(), 500);
    let server = node.server();
    assert_eq!(server.status, Some(ServerStatus::Active));
    assert_eq!(node.daemon.clients(server.pid).unwrap(), [me()]);
    drop(client);
    until("the list is empty", || {
        node.daemon.clients(server.pid).unwrap().is_empty().then_some(())
    });
}

#[test]
fn a_server_logs_its_limit_to_the_byte() {
    let node = Node::new();
    node.daemon.start(limits(3000, 125)).unwrap();
    let _client = node.client();
    let server = node.server().pid;
    let logged = until("the limit is logged", || {
        let text = log::tail(&node.site().server_log()).unwrap();
        let logged = log::server_limits(&text, server);
        (logged.memory_bytes.is_some() && logged.percent.is_some()).then_some(logged)
    });
    assert_eq!(logged.memory_bytes, Some(Memory::from_mib(3000).bytes()));
    assert_eq!(logged.percent, Some(limits(3000, 125).percent));
}

#[test]
fn changed_defaults_leave_a_running_server_as_it_is_until_it_is_told_too() {
    let node = Node::new();
    node.daemon.start(limits(2048, 250)).unwrap();
    let first = node.client();
    let server = node.server().pid;
    node.daemon.apply(limits(4096, 500)).unwrap();
    assert_eq!(node.client().limit_mib(GPU), Some(2048));
    node.daemon.apply_to_server(server, limits(4096, 500)).unwrap();
    let later = node.client();
    assert_eq!((later.limit_mib(GPU), later.percent_tenths()), (Some(4096), 500));
    assert_eq!(first.limit_mib(GPU), Some(2048));
}

#[test]
fn a_terminated_client_loses_its_work_and_the_others_do_not() {
    let node = Node::new();
    node.daemon.start(limits(512, 1000)).unwrap();
    let client = node.client();
    let server = node.server().pid;
    let unknown = fault(node.daemon.terminate_client(server, mpshare_mps::Pid::new(1).unwrap()));
    assert!(matches!(unknown, DaemonFault::NotTerminated { .. }), "{unknown}");
    assert_eq!(client.status(), SessionStatus::Live);
    node.daemon.terminate_client(server, me()).unwrap();
    assert_eq!(client.status(), SessionStatus::Terminated);
    let gone = fault(node.daemon.terminate_client(me(), me()));
    assert!(matches!(gone, DaemonFault::NoSuchServer(_)), "{gone}");
}

#[test]
fn a_server_that_is_stuck_initializing_has_no_list_of_clients() {
    let node = Node::new();
    node.fault(|faults| faults.server_hangs_at_start = true);
    node.daemon.start(limits(512, 1000)).unwrap();
    let waiting = node.waiting_client();
    let server = node.server();
    assert_eq!(server.status, Some(ServerStatus::Initializing));
    let no_list = fault(node.daemon.clients(server.pid));
    assert!(matches!(no_list, DaemonFault::ServerInitializing(pid) if pid == server.pid));
    let no_limits = fault(node.daemon.apply_to_server(server.pid, limits(512, 500)));
    assert!(matches!(no_limits, DaemonFault::ServerInitializing(_)), "{no_limits}");
    node.daemon.kill().unwrap();
    waiting.join().unwrap().expect_err("its daemon is dead");
}

#[test]
fn a_killed_server_is_replaced_for_the_next_client() {
    let node = Node::new();
    node.daemon.start(limits(512, 1000)).unwrap();
    let client = node.client();
    let first = node.server().pid;
    node.daemon.kill_server(first).unwrap();
    until("the client has noticed", || client.error());
    drop(client);
    let _client = node.client();
    assert_ne!(node.server().pid, first);
}

#[test]
fn a_client_fault_shows_as_the_servers_status() {
    let node = Node::new();
    node.daemon.start(limits(512, 1000)).unwrap();
    let client = node.client();
    let server = node.server().pid;
    raise_fault(&node.store, server.get(), GPU, 700).unwrap();
    let status = || node.daemon.servers().unwrap().pop().and_then(|server| server.status);
    until("the server is in FAULT", || (status() == Some(ServerStatus::Fault)).then_some(()));
    drop(client);
    until("the server serves again", || (status() == Some(ServerStatus::Active)).then_some(()));
}

#[test]
fn where_a_server_takes_one_user_another_ones_client_waits_and_is_not_listed() {
    let node = Node::of_driver("550.163.01", VersionProfile::R550);
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: acting as another user takes root");
        return;
    }
    node.daemon.start(limits(512, 1000)).unwrap();
    let client = node.client();
    let server = node.server().pid;
    let pipe = node.pipe();
    let other = std::thread::spawn(move || {
        set_thread_uid(Uid::from_raw(1234)).unwrap();
        attach(&pipe, &AttachRequest::default())
    });
    until("it waits", || {
        let text = log::tail(&node.site().control_log()).unwrap();
        text.contains("from user 1234").then_some(())
    });
    assert_eq!(node.server().pid, server);
    assert_eq!(node.daemon.clients(server).unwrap(), [me()]);
    drop(client);
    let _session = other.join().unwrap().expect("its turn has come");
    assert_ne!(node.server().pid, server);
}

#[test]
fn where_a_server_takes_all_users_the_clients_share_it() {
    let node = Node::new();
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: acting as another user takes root");
        return;
    }
    node.daemon.start(limits(512, 1000)).unwrap();
    let client = node.client();
    let pipe = node.pipe();
    let other = std::thread::spawn(move || {
        set_thread_uid(Uid::from_raw(1234)).unwrap();
        attach(&pipe, &AttachRequest::default())
    });
    let session = other.join().unwrap().expect("it needn't wait");
    assert_eq!(session.server(), client.server());
}
