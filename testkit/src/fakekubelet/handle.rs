//! A test's grip on one pod.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::admission::Command;
use super::devices::Ids;
use super::launch::pod_directory;
use super::node::{Node, WaitError};
use super::pod::PodSpec;
use super::status::{Phase, PodStatus};

/// One pod of a fake kubelet.
#[derive(Clone)]
pub struct PodHandle {
    pub(super) node: Arc<Node>,
    pub(super) pod: Arc<PodSpec>,
    pub(super) commands: mpsc::UnboundedSender<Command>,
}

impl PodHandle {
    /// UID of the pod.
    pub fn uid(&self) -> &str {
        &self.pod.uid
    }

    /// The pod as it was given.
    pub fn spec(&self) -> &PodSpec {
        &self.pod
    }

    /// Status now.
    pub fn status(&self) -> PodStatus {
        let uid = &self.pod.uid;
        let status =
            self.node.read(|state| state.pods.get(uid).map(|record| record.status.clone()));
        status.unwrap_or_else(|| PodStatus::new(&self.pod))
    }

    /// Waits until `check` holds for the status.
    pub async fn wait(
        &self,
        what: &str,
        deadline: Duration,
        mut check: impl FnMut(&PodStatus) -> bool,
    ) -> Result<PodStatus, WaitError> {
        let what = format!("pod `{}` {what}", self.pod.name);
        let found = self.node.wait(&what, deadline, |state| {
            let status = &state.pods.get(&self.pod.uid)?.status;
            check(status).then(|| status.clone())
        });
        found.await.map_err(|mut error| {
            error.what = format!("{}; its status is {:?}", error.what, self.status());
            error
        })
    }

    /// Waits until the pod has this phase.
    pub async fn wait_phase(
        &self,
        phase: Phase,
        deadline: Duration,
    ) -> Result<PodStatus, WaitError> {
        let what = format!("is {phase:?}");
        self.wait(&what, deadline, |status| status.phase == phase).await
    }

    /// Waits until the kubelet is done with the deleted pod.
    pub async fn wait_gone(&self, deadline: Duration) -> Result<PodStatus, WaitError> {
        self.wait("is gone", deadline, |status| status.gone).await
    }

    /// Waits until no container of the pod runs and none will be started: later than
    /// [`Self::wait_gone`] after a forced deletion.
    pub async fn wait_stopped(&self, deadline: Duration) -> Result<(), WaitError> {
        let what = format!("pod `{}` has stopped", self.pod.name);
        let stopped = |state: &super::node::State| {
            let record = state.pods.get(&self.pod.uid)?;
            record.terminated.then_some(())
        };
        self.node.wait(&what, deadline, stopped).await
    }

    /// Device ids that the kubelet has for a container's resource.
    pub fn devices(&self, container: &str, resource: &str) -> Ids {
        let ids = self.node.read(|state| {
            let holding = state.devices.holding(&self.pod.uid, container, resource);
            holding.map(|holding| holding.ids.clone())
        });
        ids.unwrap_or_default()
    }

    /// Environment of a container's latest start, after path mapping.
    pub fn env(&self, container: &str) -> BTreeMap<String, String> {
        let mut containers = self.status().containers;
        let env = containers.remove(container).map(|container| container.env);
        env.unwrap_or_default()
    }

    /// What a container has written so far, over all its starts.
    pub fn log(&self, container: &str) -> String {
        let directory = pod_directory(&self.node.options, &self.pod);
        let bytes = std::fs::read(directory.join(format!("{container}.log")));
        String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
    }

    /// Deletes the pod: SIGTERM, then SIGKILL after its grace period; then its devices are free.
    pub fn delete(&self) {
        self.delete_with_grace(self.pod.grace);
    }

    /// Deletes the pod with this grace period.
    pub fn delete_with_grace(&self, grace: Duration) {
        let uid = self.pod.uid.clone();
        self.send(Command::Delete { uid, grace });
    }

    /// Deletes the pod with `--force --grace-period=0`: its devices are free at once, its
    /// processes still live for [`min_grace`](super::Options::min_grace).
    pub fn force_delete(&self) {
        let uid = self.pod.uid.clone();
        let grace = Duration::ZERO;
        self.send(Command::Forget { uid, grace });
    }

    fn send(&self, command: Command) {
        // The other end lives as long as the fake kubelet, also while its process is down.
        if self.commands.send(command).is_err() {
            tracing::info!(pod = %self.pod.name, "the node is gone");
        }
    }
}
