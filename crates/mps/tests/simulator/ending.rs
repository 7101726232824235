//! Quitting and killing.

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpshare_core::VersionProfile;
use mpshare_mps::DaemonSettings;
use mpshare_mps::{
    ControlDaemon as _, DaemonFault, DaemonSite, LaunchError, Launcher, Obstacle, OwnSession,
    Patience, Proc, ProcessDaemon,
};

use super::node::{Node, fault, limits, patience};

/// A launcher whose front-ends run as somebody without rights.
struct Unprivileged(OwnSession);

impl Launcher for Unprivileged {
    fn launch(
        &self,
        site: &DaemonSite,
        settings: &DaemonSettings,
        deadline: Duration,
    ) -> Result<(), LaunchError> {
        self.0.launch(site, settings, deadline)
    }

    fn front_end(&self, site: &DaemonSite, settings: &DaemonSettings) -> Command {
        let mut command = self.0.front_end(site, settings);
        command.uid(1234).gid(1234);
        command
    }

    fn canary(
        &self,
        site: &DaemonSite,
        settings: &DaemonSettings,
        depth: mpshare_mps::Depth,
    ) -> Option<Command> {
        self.0.canary(site, settings, depth)
    }

    fn obstacle(&self, deadline: Duration) -> Option<Obstacle> {
        self.0.obstacle(deadline)
    }
}

#[test]
fn a_daemon_that_quits_is_gone_with_its_server() {
    let node = Node::new();
    let process = node.daemon.start(limits(512, 1000)).unwrap();
    drop(node.client());
    let server = node.server().pid;
    node.daemon.quit(Duration::from_secs(10)).unwrap();
    assert_eq!(node.daemon.holder().unwrap(), None);
    assert_eq!(Proc::default().identify(process.pid).unwrap(), None);
    assert_eq!(Proc::default().identify(server).unwrap(), None);
}

#[test]
fn to_quit_a_daemon_that_does_not_run_is_fine() {
    let node = Node::new();
    node.daemon.quit(Duration::ZERO).unwrap();
    node.daemon.kill().unwrap();
}

#[test]
fn a_client_that_stays_loses_its_server_after_the_drain() {
    let node = Node::new();
    node.daemon.start(limits(512, 1000)).unwrap();
    let client = node.client();
    let begin = Instant::now();
    node.daemon.quit(Duration::from_secs(1)).unwrap();
    assert!(begin.elapsed() >= Duration::from_secs(1));
    assert!(client.error().is_some());
    assert_eq!(node.daemon.holder().unwrap(), None);
}

#[test]
fn a_refused_quit_is_an_error_though_the_front_end_ends_well() {
    let node = Node::new();
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: acting as another user takes root");
        return;
    }
    let process = node.daemon.start(limits(512, 1000)).unwrap();
    let nobody = ProcessDaemon::new(
        node.site(),
        Arc::new(Unprivileged(node.launcher())),
        VersionProfile::R555,
    )
    .with_patience(patience());
    let refused = fault(nobody.quit(Duration::from_secs(1)));
    assert!(
        matches!(&refused, DaemonFault::Refused(reply) if reply.contains("Not enough privilege")),
        "{refused}"
    );
    let refused = fault(nobody.apply(limits(1024, 500)));
    assert!(matches!(&refused, DaemonFault::Refused(_)), "{refused}");
    assert_eq!(node.daemon.holder().unwrap(), Some(process));
    assert!(node.daemon.defaults().unwrap().shows(limits(512, 1000)));
}

#[test]
fn a_killed_daemon_takes_its_server_along_and_can_be_started_again() {
    let node = Node::new();
    let first = node.daemon.start(limits(512, 1000)).unwrap();
    let client = node.client();
    let server = node.server().pid;
    node.daemon.kill().unwrap();
    assert_eq!(node.daemon.holder().unwrap(), None);
    assert_eq!(Proc::default().identify(server).unwrap(), None);
    assert!(client.error().is_some());
    let second = node.daemon.start(limits(512, 1000)).unwrap();
    assert_ne!(first, second);
}

#[test]
fn a_daemon_that_does_not_hear_the_quit_is_reported_as_still_running() {
    let node = Node::new();
    let process = node.daemon.start(limits(512, 1000)).unwrap();
    node.fault(|faults| faults.ui_delay_ms = 10_000);
    let hasty = node
        .daemon
        .clone()
        .with_patience(Patience { end: Duration::from_millis(100), ..patience() });
    let running = fault(hasty.quit(Duration::ZERO));
    assert!(
        matches!(running, DaemonFault::StillRunning { pid, .. } if pid == process.pid),
        "{running}"
    );
    node.daemon.kill().unwrap();
    assert_eq!(node.daemon.holder().unwrap(), None);
}
