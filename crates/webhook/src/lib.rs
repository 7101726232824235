//! The role `webhook`: answers the API server's admission reviews of pods.
//!
//! What is changed in a pod and what is wrong with it is decided in [`mpshare_core::admission`];
//! here are the edges: HTTPS, the forms of reviews, the modes, certificates, and a watch of nodes
//! from which the rules learn what cards there are. All state is derived, and every replica answers
//! for itself, so that any number of them can run and be restarted at any moment.
//!
//! | module | idea |
//! |---|---|
//! | `http` | routes, and bodies that are no reviews |
//! | `review` | one question -> its answer |
//! | `patch`, `warnings` | edits and sentences in the form that API servers take |
//! | `audit` | Events about what a mode lets pass silently |
//! | `certificates` | made and rotated by itself, or read from files |
//! | `serving` | the certificate that connections get |
//! | `watch` | the fleet |

mod audit;
mod certificates;
mod http;
mod metrics;
mod mode;
mod patch;
mod review;
mod serving;
mod warnings;
mod watch;
mod webhook;

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum_server::Handle;
use axum_server::accept::NoDelayAcceptor;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use kube::Client;
use mpshare_core::admission::Policy;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use certificates::{CertificateSource, Lives, SelfMade};
pub use mode::Mode;
pub use review::{Reviewed, Rules, Unanswerable, mutate, validate};
use webhook::Webhook;

/// How long reviews that are being answered may take when everything else has ended.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// Why the webhook ended.
#[derive(Debug, Error)]
pub enum RunError {
    /// Its HTTPS server can't be set up.
    #[error("no TLS")]
    Tls(#[source] rustls::Error),
    /// A server failed.
    #[error("the HTTP server failed")]
    Serve(#[source] io::Error),
}

/// Where the webhook listens.
#[derive(Debug)]
pub struct Listeners {
    /// For API servers, with TLS.
    pub reviews: TcpListener,
    /// For probes and Prometheus, without.
    pub status: TcpListener,
}

/// How the webhook is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// What the cluster's owner wants of pods.
    pub policy: Policy,
    /// Users that may write our annotations.
    pub own_accounts: BTreeSet<String>,
    /// Where certificates come from.
    pub certificates: CertificateSource,
    /// How long it goes on answering after it was told to end and isn't ready any more.
    pub drain: Duration,
}

/// Answers on these listeners until the token is cancelled and the drain is over.
pub async fn run(
    client: Client,
    listeners: Listeners,
    options: Options,
    shutdown: CancellationToken,
) -> Result<(), RunError> {
    let Options { policy, own_accounts, certificates, drain } = options;
    let (reporter, reports) = audit::queue();
    let webhook = Arc::new(Webhook::new(policy, own_accounts, reporter));
    let served = serve(listeners, Arc::clone(&webhook), &shutdown, drain);
    tokio::select! {
        () = watch::run(&client, &webhook) => Ok(()),
        () = certificates::run(&client, &certificates, &webhook.serving) => Ok(()),
        () = audit::run(&client, reports) => Ok(()),
        served = served => served,
    }
}

async fn serve(
    listeners: Listeners,
    webhook: Arc<Webhook>,
    shutdown: &CancellationToken,
    drain: Duration,
) -> Result<(), RunError> {
    let handle = Handle::new();
    let reviews = serve_reviews(listeners.reviews, &webhook, handle.clone())?;
    let ended = CancellationToken::new();
    let status: Router = http::status(Arc::clone(&webhook));
    let status = axum::serve(listeners.status, status)
        .with_graceful_shutdown(ended.clone().cancelled_owned());
    let end = async {
        shutdown.cancelled().await;
        webhook.end();
        tokio::time::sleep(drain).await;
        handle.graceful_shutdown(Some(LAST_ANSWERS));
        Ok(())
    };
    let reviews = async {
        let served = reviews.await;
        ended.cancel();
        served
    };
    tokio::try_join!(reviews, status, end).map(drop_all).map_err(RunError::Serve)
}

fn drop_all(_: ((), (), ())) {}

/// The HTTPS server; nothing is accepted before the future is awaited.
fn serve_reviews(
    listener: TcpListener,
    webhook: &Arc<Webhook>,
    handle: Handle<std::net::SocketAddr>,
) -> Result<impl Future<Output = io::Result<()>> + use<>, RunError> {
    let config = serving::server_config(&webhook.serving).map_err(RunError::Tls)?;
    let acceptor = RustlsAcceptor::new(RustlsConfig::from_config(Arc::new(config)));
    let acceptor = acceptor.acceptor(NoDelayAcceptor::new());
    let listener = listener.into_std().map_err(RunError::Serve)?;
    let server = axum_server::from_tcp(listener).map_err(RunError::Serve)?;
    let router = http::reviews(Arc::clone(webhook));
    Ok(server.acceptor(acceptor).http1_only().handle(handle).serve(router.into_make_service()))
}
