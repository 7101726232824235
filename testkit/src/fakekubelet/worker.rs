//! One worker per admitted pod: starts its containers in order, starts them again as the restart
//! policy says, stops them when told to, and works out the pod's phase.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::container::Run;
use super::node::Node;
use super::pod::{ContainerKind, PodSpec, RestartPolicy};
use super::sandbox::Sandbox;
use super::status::{ContainerStatus, Phase, PodStatus};

/// An order to stop all containers of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stop {
    /// Time between SIGTERM and SIGKILL.
    pub(super) grace: Duration,
}

/// How a worker hears of the order.
pub(super) type StopSignal = watch::Receiver<Option<Stop>>;

/// Runs a pod to its end.
pub(super) async fn run_pod(node: Arc<Node>, pod: Arc<PodSpec>, mut stop: StopSignal) {
    let _sandbox = Sandbox::start(&node, &pod);
    let sidecar_stop = watch::Sender::new(None);
    let mut sidecars = JoinSet::new();
    let started = start_in_order(&node, &pod, &stop, &sidecar_stop, &mut sidecars).await;
    if started {
        run_app_containers(&node, &pod, &stop).await;
    }
    let grace = stop.borrow_and_update().map_or(pod.grace, |stop| stop.grace);
    sidecar_stop.send_replace(Some(Stop { grace }));
    while sidecars.join_next().await.is_some() {}
    node.change_status(&pod.uid, finish);
    node.change(|state| {
        if let Some(record) = state.pods.get_mut(&pod.uid) {
            record.terminated = true;
        }
    });
}

/// Init containers run to their end one after the other; sidecars go on. False when the pod can't
/// get to its app containers.
async fn start_in_order(
    node: &Arc<Node>,
    pod: &Arc<PodSpec>,
    stop: &StopSignal,
    sidecar_stop: &watch::Sender<Option<Stop>>,
    sidecars: &mut JoinSet<()>,
) -> bool {
    for container in pod.init_containers() {
        let mut run = Run::new(node, pod, container, stop.clone());
        if container.kind == ContainerKind::Sidecar {
            run.stop = sidecar_stop.subscribe();
            run.restart = RestartPolicy::Always;
            let name = container.name.clone();
            sidecars.spawn(async move {
                run.run_to_end().await;
            });
            if !wait_started(node, &pod.uid, &name, stop.clone()).await {
                return false;
            }
        } else {
            run.restart = match pod.restart {
                RestartPolicy::Never => RestartPolicy::Never,
                RestartPolicy::Always | RestartPolicy::OnFailure => RestartPolicy::OnFailure,
            };
            if run.run_to_end().await != 0 || stop.borrow().is_some() {
                return false;
            }
        }
    }
    stop.borrow().is_none()
}

async fn wait_started(node: &Node, uid: &str, container: &str, mut stop: StopSignal) -> bool {
    let mut changes = node.watch();
    loop {
        let started = node.read(|state| {
            let status = state.pods.get(uid).map(|record| &record.status);
            let container = status.and_then(|status| status.containers.get(container));
            container.is_some_and(ContainerStatus::was_started)
        });
        if started || stop.borrow().is_some() {
            return started;
        }
        let awaited = async { changes.changed().await.is_ok() };
        let kept_on = tokio::select! {
            more = awaited => more,
            more = async { stop.changed().await.is_ok() } => more,
        };
        if !kept_on {
            return false;
        }
    }
}

async fn run_app_containers(node: &Arc<Node>, pod: &Arc<PodSpec>, stop: &StopSignal) {
    let mut running = JoinSet::new();
    for container in pod.app_containers() {
        let mut run = Run::new(node, pod, container, stop.clone());
        running.spawn(async move {
            run.run_to_end().await;
        });
    }
    while running.join_next().await.is_some() {}
}

/// Sets the terminal phase, unless the pod was rejected and has one.
fn finish(status: &mut PodStatus) {
    if status.phase.is_terminal() {
        return;
    }
    let succeeded = status
        .containers
        .values()
        .filter(|container| container.kind != ContainerKind::Sidecar)
        .all(|container| container.exit_code() == Some(0));
    status.phase = if succeeded { Phase::Succeeded } else { Phase::Failed };
}

/// Running once every app container has started, Pending before.
pub(super) fn work_out_phase(status: &mut PodStatus) {
    let mut apps =
        status.containers.values().filter(|container| container.kind == ContainerKind::App);
    if !status.phase.is_terminal() && apps.all(ContainerStatus::was_started) {
        status.phase = Phase::Running;
    }
}
