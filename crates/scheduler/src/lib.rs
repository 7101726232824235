//! The role `scheduler-extender`: tells kube-scheduler which nodes have a GPU with room, and binds
//! pods to one.
//!
//! It keeps [`mpshare_core::ledger`] up to date from two watches and answers from it. All of its
//! state is derived, so that it can be restarted at any moment. It is the only binder of pods that
//! ask for GPUs: a second one beside it, with a ledger of its own, would need a leader between
//! them, which kube-scheduler's own election is when each has its scheduler beside it.

mod bind;
mod extender;
mod filter;
mod http;
mod inspect;
mod metrics;
mod watch;

use std::sync::Arc;

use kube::Client;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use extender::Extender;

/// Why the extender ended.
#[derive(Debug, Error)]
pub enum RunError {
    /// Its HTTP server failed.
    #[error("the HTTP server failed")]
    Serve(#[source] std::io::Error),
}

/// Answers kube-scheduler on this listener until the token is cancelled.
pub async fn run(
    client: Client,
    listener: TcpListener,
    shutdown: CancellationToken,
) -> Result<(), RunError> {
    let extender = Arc::new(Extender::new(client));
    let watches = watch::run(&extender);
    let router = http::router(Arc::clone(&extender));
    let stop = shutdown.clone().cancelled_owned();
    let server = axum::serve(listener, router).with_graceful_shutdown(stop);
    tokio::select! {
        () = watches => Ok(()),
        served = server => served.map_err(RunError::Serve),
    }
}
