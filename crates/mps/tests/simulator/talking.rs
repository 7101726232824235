//! Sessions: one at a time, some slow, some of others.

use std::process::{Child, Stdio};
use std::time::Duration;

use mpshare_mps::DaemonSettings;
use mpshare_mps::{ControlDaemon as _, DaemonFault, Launcher as _, Patience};

use super::node::{Node, fault, limits, patience, until};
use mpshare_mps::log;

/// A person's open session. Ends with its stdin.
struct OpenSession(Child);

impl OpenSession {
    fn open(node: &Node) -> Self {
        let mut command = node.launcher().front_end(&node.site(), &DaemonSettings::default());
        let before = sessions(node);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        until("the session is open", || (sessions(node) > before).then_some(()));
        Self(child)
    }
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

fn sessions(node: &Node) -> usize {
    let text = log::tail(&node.site().control_log()).unwrap();
    text.matches("NEW UI").count()
}

#[test]
fn nobody_there_is_told_from_nobody_answers() {
    let node = Node::new();
    std::fs::create_dir(node.pipe()).unwrap();
    assert!(matches!(fault(node.daemon.servers()), DaemonFault::NotRunning));
    assert!(matches!(fault(node.daemon.apply(limits(512, 1000))), DaemonFault::NotRunning));
}

#[test]
fn while_another_session_is_open_no_list_comes_back_empty() {
    let node = Node::new();
    node.daemon.start(limits(512, 1000)).unwrap();
    let _client = node.client();
    let server = node.server().pid;
    let hasty = node
        .daemon
        .clone()
        .with_patience(Patience { turn: Duration::from_millis(30), ..patience() });
    let open = OpenSession::open(&node);
    for _ in 0..10 {
        assert!(matches!(fault(hasty.servers()), DaemonFault::Busy { .. }));
        assert!(matches!(fault(hasty.clients(server)), DaemonFault::Busy { .. }));
        assert!(matches!(fault(hasty.apply(limits(512, 500))), DaemonFault::Busy { .. }));
    }
    drop(open);
    assert_eq!(node.daemon.servers().unwrap().len(), 1);
}

#[test]
fn an_answer_comes_as_soon_as_the_other_session_closes() {
    let node = Node::new();
    node.daemon.start(limits(512, 1000)).unwrap();
    let open = OpenSession::open(&node);
    let daemon = node.daemon.clone();
    let asking = std::thread::spawn(move || daemon.apply(limits(1024, 500)));
    let hasty = node
        .daemon
        .clone()
        .with_patience(Patience { turn: Duration::from_millis(30), ..patience() });
    assert!(matches!(fault(hasty.servers()), DaemonFault::Busy { .. }));
    drop(open);
    asking.join().unwrap().unwrap();
}

#[test]
fn many_at_once_are_all_answered() {
    let node = Node::new();
    node.daemon.start(limits(512, 1000)).unwrap();
    let asking: Vec<_> = (1..=8)
        .map(|n| {
            let daemon = node.daemon.clone();
            std::thread::spawn(move || daemon.apply(limits(512 * n, 1000)))
        })
        .collect();
    for thread in asking {
        thread.join().unwrap().unwrap();
    }
}

#[test]
fn a_daemon_that_does_not_answer_in_time_is_told_from_a_busy_one() {
    let node = Node::new();
    node.daemon.start(limits(512, 1000)).unwrap();
    node.fault(|faults| faults.ui_delay_ms = 2_000);
    let hasty = node
        .daemon
        .clone()
        .with_patience(Patience { answer: Duration::from_millis(100), ..patience() });
    let hung = fault(hasty.servers());
    assert!(
        matches!(&hung, DaemonFault::NoAnswer { command, .. } if command == "get_server_list"),
        "{hung}"
    );
    node.fault(|faults| faults.ui_delay_ms = 0);
    assert_eq!(node.daemon.servers().unwrap(), []);
}

#[test]
fn a_front_end_that_cannot_run_is_named() {
    let node = Node::new();
    let program = node.bin().join("nvidia-cuda-mps-control");
    std::fs::remove_file(&program).unwrap();
    let failed = fault(node.daemon.servers());
    let DaemonFault::FrontEnd { program: named, .. } = failed else {
        panic!("{failed}");
    };
    assert_eq!(named, program.display().to_string());
}
