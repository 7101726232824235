//! The life of one resource at the kubelet: serve, register, notice that the kubelet is gone or
//! new, and start over with a new listener.
//!
//! A kubelet deletes every socket of the directory when it starts (facts/kubernetes.md 1.1), and
//! before 1.37 it loses the newer of two registrations when the older one's stream ends (1.3).
//! So each registration has a listener of its own and is closed before the next one begins.

mod retry;
mod rival;
mod session;
mod socket;

pub(crate) use socket::PREFIX as SOCKET_PREFIX;

/// What the sockets of NVIDIA's plugin begin with.
pub(crate) const RIVAL_PREFIX: &str = "nvidia-";

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mpshare_core::ResourceName;
use mpshare_kubelet::device_plugin::KUBELET_SOCKET_NAME;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::node::Node;
use crate::server::Devices;
use mpshare_telemetry::Failures;
use mpshare_watch::{Identity, identity};

use retry::Retry;
pub(crate) use rival::Drops;
use session::{End, Session};

/// Between two registrations with one and the same kubelet: it has to notice the end of the
/// first one's stream before the second begins.
const SAME_KUBELET_PAUSE: Duration = Duration::from_millis(50);

/// The same after a predecessor that was killed: its end may still be news to a busy kubelet.
const PREDECESSOR_PAUSE: Duration = Duration::from_millis(200);

/// One resource and what its registration depends on.
pub(crate) struct Resource {
    /// What answers the kubelet.
    pub(crate) node: Arc<Node>,
    /// The name.
    pub(crate) name: ResourceName,
    /// Its device list.
    pub(crate) devices: watch::Receiver<Devices>,
    /// Fires when something changed in the sockets' directory.
    pub(crate) sockets: watch::Receiver<()>,
    /// The end of the role.
    pub(crate) shutdown: CancellationToken,
    /// How often a kubelet dropped us.
    pub(crate) drops: Drops,
}

impl Resource {
    /// Keeps the resource registered while it has units, until the end of the role.
    pub(crate) async fn keep_registered(mut self) {
        let timings = self.node.options().timings;
        let mut attempts = Attempts {
            retry: Retry::new(timings.retry_first, timings.retry_longest),
            failures: Failures::new("registration failed"),
            kubelet: None,
        };
        while self.has_units().await {
            self.sockets.mark_unchanged();
            let Ok(kubelet) = identity(&self.kubelet_socket()) else {
                self.wait_for_sockets(timings.recheck).await;
                continue;
            };
            if self.makes_way().await {
                self.wait_for_sockets(timings.recheck).await;
                continue;
            }
            if attempts.kubelet != Some(kubelet) {
                attempts.kubelet = Some(kubelet);
                attempts.retry.reset();
                // What the end of the last one did to its streams is nobody else's doing.
                self.drops = Drops::default();
            }
            let end = Session::open(&mut self, kubelet).await;
            self.after(end, &mut attempts).await;
        }
    }

    /// Whether another plugin serves the resource already. Two registrations at a time would take
    /// the resource from both, and the other one's units from running pods.
    async fn makes_way(&self) -> bool {
        let rival = rival::answering(&self.node.options().plugins_dir, &self.name).await;
        let reason = rival.as_deref().map(|socket| rival::reason(&self.name, socket));
        if reason.is_some() || self.drops.are_over(Instant::now()) {
            self.node.problems.set(&self.name, reason);
        }
        rival.is_some()
    }

    /// Waits as long as the end of a registration asks for.
    async fn after(&mut self, end: End, attempts: &mut Attempts) {
        match end {
            End::Shutdown => {}
            End::Dropped => {
                let why = "the kubelet closed the device list's stream";
                tracing::info!(resource = %self.name, why, "registration ended");
                let has_same_kubelet = identity(&self.kubelet_socket()).ok() == attempts.kubelet;
                let reason = self.drops.add(&self.name, Instant::now());
                if has_same_kubelet && let Some(reason) = reason {
                    self.node.problems.set(&self.name, Some(reason));
                }
                if has_same_kubelet {
                    self.pause(SAME_KUBELET_PAUSE).await;
                }
            }
            End::Over(why) => {
                attempts.failures.over();
                attempts.retry.reset();
                tracing::info!(resource = %self.name, why, "registration ended");
                if identity(&self.kubelet_socket()).ok() == attempts.kubelet {
                    self.pause(SAME_KUBELET_PAUSE).await;
                }
            }
            End::Failed(problem) => {
                attempts.failures.failed(&format!("`{}`: {problem}", self.name));
                let pause = attempts.retry.next_pause();
                self.wait_for_new_kubelet(attempts.kubelet, pause).await;
            }
        }
    }

    fn kubelet_socket(&self) -> PathBuf {
        self.node.options().plugins_dir.join(KUBELET_SOCKET_NAME)
    }

    /// Waits until there is something to register; false at the end of the role.
    async fn has_units(&mut self) -> bool {
        let shutdown = self.shutdown.clone();
        tokio::select! {
            () = shutdown.cancelled() => false,
            found = self.devices.wait_for(|devices| !devices.is_empty()) => found.is_ok(),
        }
    }

    async fn wait_for_sockets(&mut self, longest: Duration) {
        tokio::select! {
            () = self.shutdown.cancelled() => {}
            _ = self.sockets.changed() => {}
            () = tokio::time::sleep(longest) => {}
        }
    }

    /// Waits until the kubelet's socket isn't `known` any more. That something else changed among the
    /// sockets is no news: each attempt makes and removes our own.
    async fn wait_for_new_kubelet(&mut self, known: Option<Kubelet>, longest: Duration) {
        let is_new = |this: &Self| identity(&this.kubelet_socket()).ok() != known;
        let wait = async {
            while !is_new(self) {
                self.wait_for_sockets(longest).await;
                if self.shutdown.is_cancelled() {
                    return;
                }
            }
        };
        // Its end is the longest wait.
        drop(tokio::time::timeout(longest, wait).await);
    }

    async fn pause(&self, pause: Duration) {
        tokio::select! {
            () = self.shutdown.cancelled() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// What is remembered from one registration to the next.
struct Attempts {
    retry: Retry,
    failures: Failures,
    /// The kubelet that was tried last.
    kubelet: Option<Kubelet>,
}

/// A kubelet's registration socket; a new kubelet has a new one.
type Kubelet = Identity;
