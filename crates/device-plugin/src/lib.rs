//! The device plugin role: offers a node's GPU shares to the kubelet and says what each container
//! gets.
//!
//! It needs no driver library and no privileges: the cards are the ones that the supervisor
//! reports, and what they should offer follows from the config by [`mpshare_core::plan()`]. It is
//! the one writer of `allocations.json` and `holdings.json`. What the Kubernetes API says of pods it
//! reads from config-manager's `bound-pods.json`, as advice.
//!
//! | module | idea |
//! |---|---|
//! | `options` | where files are, how long things take |
//! | `view` | config and report, as others write them |
//! | `ledger` | who was given what, and whether it is still held |
//! | `units` | which device list the kubelet should have |
//! | [`handoff`] | what was planned for whom, and who has what |
//! | `gate` | whether a container may start |
//! | `response` | what a container is given |
//! | `node` | all that is known, and answers from it |
//! | `server`, `registration` | the gRPC service of a resource and its life at the kubelet |
//! | `holders`, `control_lock` | looks at the kubelet, at daemons |
//! | `publisher` | lists to their servers |
//! | `problems` | what keeps resources from being served, for people |

mod activity;
mod control_lock;
mod gate;
pub mod handoff;
mod holders;
mod ledger;
mod node;
mod options;
mod problems;
mod publisher;
mod registration;
mod response;
mod server;
#[cfg(test)]
mod testing;
mod units;
mod view;

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Instant;

use mpshare_kubelet::device_plugin::KUBELET_SOCKET_NAME;
use mpshare_kubelet::socket::ConnectError;
use mpshare_watch::{Directory, IfMissing, Removed, WatchMask, sole};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::node::Node;
use crate::publisher::Publisher;

pub use crate::options::{Options, Timings};

/// The role can't work at all. Everything that may pass is retried instead.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The pod resources socket's path can't be used.
    #[error("pod resources socket can't be used")]
    PodResources(#[from] ConnectError),
    /// A directory that it works in was removed under its mount.
    #[error(transparent)]
    Removed(#[from] Removed),
}

/// Runs the role until `shutdown`. Has to be called inside a tokio runtime.
pub async fn run(options: Options, shutdown: CancellationToken) -> Result<(), Error> {
    // Two would write one file and delete each other's sockets.
    let lock = options.root().device_plugin_lock();
    let turn = sole::turn(&lock, "waiting for another device plugin of this node to end");
    let Some(_turn) = shutdown.run_until_cancelled(turn).await else {
        return Ok(());
    };
    let node = Arc::new(Node::start(options, Instant::now()));
    let resend = Arc::new(Notify::new());
    let sockets = watch::Sender::new(());
    // Dropped with this future, so that nothing outlives it.
    let guard = shutdown.child_token().drop_guard();
    let publisher = Publisher::new(Arc::clone(&node), sockets.subscribe(), guard.token().clone());
    let (root, plugins) = (files(&node), plugin_sockets(&node));
    tokio::select! {
        () = publisher.run(Arc::clone(&resend)) => Ok(()),
        removed = follow(root, || node.refresh(Instant::now())) => Err(removed.into()),
        removed = follow(plugins, || { sockets.send_replace(()); }) => Err(removed.into()),
        ended = holders::follow(Arc::clone(&node), resend) => Ok(ended?),
    }
}

/// Ends with the directory.
async fn follow(directory: Directory, mut on_change: impl FnMut()) -> Removed {
    let mut watch = directory.watch();
    loop {
        match watch.next().await {
            Ok(_name) => on_change(),
            Err(removed) => return removed,
        }
    }
}

/// The MPS root: what config-manager and supervisor write.
fn files(node: &Node) -> Directory {
    Directory {
        path: node.options().mps_root.clone(),
        if_missing: IfMissing::Create,
        // Not at a file's creation: what counts is complete content.
        mask: WatchMask::CLOSE_WRITE
            | WatchMask::MOVED_TO
            | WatchMask::MOVED_FROM
            | WatchMask::DELETE,
        is_of_interest: |name| {
            ["config.yaml", "status.json", "allocations.json", "bound-pods.json"]
                .iter()
                .any(|file| OsStr::new(file) == name)
        },
        recheck: node.options().timings.recheck,
    }
}

/// Where the kubelet and its plugins listen.
fn plugin_sockets(node: &Node) -> Directory {
    Directory {
        path: node.options().plugins_dir.clone(),
        if_missing: IfMissing::Wait,
        mask: WatchMask::CREATE | WatchMask::MOVED_TO | WatchMask::MOVED_FROM | WatchMask::DELETE,
        is_of_interest: |name| {
            let name = name.to_string_lossy();
            name == KUBELET_SOCKET_NAME
                || name.starts_with(registration::SOCKET_PREFIX)
                || name.starts_with(registration::RIVAL_PREFIX)
        },
        recheck: node.options().timings.recheck,
    }
}
