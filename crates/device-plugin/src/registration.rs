//! The life of one resource at the kubelet: serve, register, notice that the kubelet is gone or
//! new, and start over with a new listener.
//!
//! A kubelet deletes every socket of the directory when it starts (facts/kubernetes.md 1.1), and
//! before 1.37 it loses the newer of two registrations when the older one's stream ends (1.3).
//! So each registration has a listener of its own and is closed before the next one begins.

mod retry;
mod session;
mod socket;

pub(crate) use socket::PREFIX as SOCKET_PREFIX;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mpshare_core::ResourceName;
use mpshare_kubelet::device_plugin::KUBELET_SOCKET_NAME;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::node::Node;
use crate::server::Devices;
use mpshare_telemetry::Failures;
use mpshare_watch::{Identity, identity};

use retry::Retry;
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
            if attempts.kubelet != Some(kubelet) {
                attempts.kubelet = Some(kubelet);
                attempts.retry.reset();
            }
            let end = Session::open(&mut self, kubelet).await;
            self.after(end, &mut attempts).await;
        }
    }

    /// Waits as long as the end of a registration asks for.
    async fn after(&mut self, end: End, attempts: &mut Attempts) {
        match end {
            End::Shutdown => {}
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
                self.wait_for_sockets(pause).await;
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
