//! The role `scheduler-extender`: tells kube-scheduler which nodes have a GPU with room, and binds
//! pods to one.
//!
//! It keeps [`mpshare_core::ledger`] up to date from two watches and answers from it. All of its
//! state is derived, so that it can be restarted at any moment. It is the only binder of pods that
//! ask for GPUs: a second one beside it, with a ledger of its own, would need a leader between
//! them, which kube-scheduler's own election is when each has its scheduler beside it.

mod asked;
mod bind;
mod extender;
mod filter;
mod http;
mod inspect;
mod metrics;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use kube::Client;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use extender::Extender;

pub use mpshare_core::ledger::Outside;

/// Why the extender ended.
#[derive(Debug, Error)]
pub enum RunError {
    /// Its HTTP server failed.
    #[error("the HTTP server failed")]
    Serve(#[source] std::io::Error),
}

/// Where the extender listens.
#[derive(Debug)]
pub struct Listeners {
    /// For kube-scheduler: whoever reaches it can bind pods.
    pub calls: TcpListener,
    /// For probes and Prometheus, who only ask. They are answered on `calls` too.
    pub status: Option<TcpListener>,
}

impl From<TcpListener> for Listeners {
    fn from(calls: TcpListener) -> Self {
        Self { calls, status: None }
    }
}

/// How the extender counts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// What memory means that processes without a share use.
    pub outside: Outside,
    /// How long a Binding may be on its way that was sent by an extender in our place which has
    /// died: until it is over nothing is listed, since such a pod would be missed.
    pub predecessor: Duration,
}

/// Answers on these listeners until the token is cancelled.
pub async fn run(
    client: Client,
    listeners: impl Into<Listeners>,
    options: Options,
    shutdown: CancellationToken,
) -> Result<(), RunError> {
    let Listeners { calls, status } = listeners.into();
    let extender = Arc::new(Extender::new(client, options.outside));
    let watches = async {
        tokio::time::sleep(options.predecessor).await;
        watch::run(&extender).await;
    };
    let calls = serve(calls, http::router(Arc::clone(&extender)), &shutdown);
    let status = async {
        match status {
            Some(status) => serve(status, http::status(Arc::clone(&extender)), &shutdown).await,
            None => Ok(()),
        }
    };
    tokio::select! {
        () = watches => Ok(()),
        served = async { tokio::try_join!(calls, status) } => served.map(drop),
    }
}

async fn serve(
    listener: TcpListener,
    router: Router,
    shutdown: &CancellationToken,
) -> Result<(), RunError> {
    let stop = shutdown.clone().cancelled_owned();
    axum::serve(listener, router).with_graceful_shutdown(stop).await.map_err(RunError::Serve)
}
