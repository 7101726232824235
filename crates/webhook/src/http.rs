//! The routes: reviews over HTTPS, and what probes and Prometheus ask without.
//!
//! A body that is no review is answered with 400 and a sentence; an API server counts that as a
//! failed call, and its failurePolicy decides.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, State};
use axum::http::header::{CONNECTION, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use mpshare_api::admission_review::Request;

use crate::metrics::{Outcome, Verb};
use crate::mode::Mode;
use crate::review::{self, Reviewed, Unanswerable};
use crate::webhook::Webhook;

/// The longest review: an object and its old form have 3 MiB at most, by the limit of a request.
const MAX_BODY: usize = 4 * 1024 * 1024;

/// How many reviews are taken at a time. Whoever reaches the port can send some; API servers have
/// few under way.
pub(crate) const AT_A_TIME: usize = 64;

/// How long a body may take to come; API servers wait 10 s for the answer unless told otherwise.
const BODY_WITHIN: Duration = Duration::from_secs(10);

type Shared = State<Arc<Webhook>>;

/// The routes for API servers.
pub(crate) fn reviews(webhook: Arc<Webhook>) -> Router {
    Router::new()
        .route("/mutate/{mode}", post(answer_mutate))
        .route("/validate/{mode}", post(answer_validate))
        .with_state(webhook)
}

/// The routes that tell how the webhook is.
pub(crate) fn status(webhook: Arc<Webhook>) -> Router {
    Router::new()
        .route("/version", get(env!("CARGO_PKG_VERSION")))
        .route("/healthz", get("ok"))
        .route("/readyz", get(answer_ready))
        .route("/metrics", get(answer_metrics))
        .with_state(webhook)
}

async fn answer_mutate(State(webhook): Shared, Path(mode): Path<String>, body: Body) -> Response {
    answer(&webhook, Verb::Mutate, &mode, body).await
}

async fn answer_validate(State(webhook): Shared, Path(mode): Path<String>, body: Body) -> Response {
    answer(&webhook, Verb::Validate, &mode, body).await
}

async fn answer(webhook: &Webhook, verb: Verb, mode: &str, body: Body) -> Response {
    let mut response = match mode.parse() {
        Ok(mode) => reviewed(webhook, verb, mode, body).await,
        Err(problem) => (StatusCode::NOT_FOUND, problem).into_response(),
    };
    // API servers keep connections: the next review has to go to another replica.
    if webhook.is_ending() {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

async fn reviewed(webhook: &Webhook, verb: Verb, mode: Mode, body: Body) -> Response {
    let Ok(_place) = webhook.places.try_acquire() else {
        let problem = format!("{AT_A_TIME} reviews are under way");
        return (StatusCode::SERVICE_UNAVAILABLE, problem).into_response();
    };
    let body = match tokio::time::timeout(BODY_WITHIN, to_bytes(body, MAX_BODY)).await {
        Ok(Ok(body)) => body,
        Ok(Err(error)) => {
            let problem = mpshare_telemetry::sentence(&error);
            return unreadable(webhook, verb, mode, &format!("the body can't be read: {problem}"));
        }
        Err(_) => {
            let problem = format!("the body didn't come within {} s", BODY_WITHIN.as_secs());
            return unreadable(webhook, verb, mode, &problem);
        }
    };
    let begun = Instant::now();
    match decide(webhook, verb, mode, &body) {
        Ok(body) => {
            webhook.metrics.took(verb, begun.elapsed());
            ([(CONTENT_TYPE, "application/json")], body).into_response()
        }
        Err(problem) => unreadable(webhook, verb, mode, &problem),
    }
}

/// The body of the answer, or why there is none.
fn decide(webhook: &Webhook, verb: Verb, mode: Mode, body: &[u8]) -> Result<Vec<u8>, String> {
    let request = Request::read(body).map_err(|error| error.to_string())?;
    let answer = webhook.with_rules(|rules| match verb {
        Verb::Mutate => review::mutate(rules, mode, &request),
        Verb::Validate => review::validate(rules, mode, &request),
    });
    let Reviewed { response, outcome, findings } =
        answer.map_err(|error: Unanswerable| error.to_string())?;
    let body = response.to_body().map_err(|error| error.to_string())?;
    webhook.metrics.count(verb, mode, outcome);
    for finding in &findings {
        webhook.metrics.found(finding.code(), mode);
    }
    if mode == Mode::Audit && !request.dry_run {
        webhook.reporter.report(&request, &findings);
    }
    Ok(body)
}

fn unreadable(webhook: &Webhook, verb: Verb, mode: Mode, problem: &str) -> Response {
    tracing::debug!(problem, "no review");
    webhook.metrics.count(verb, mode, Outcome::Unreadable);
    (StatusCode::BAD_REQUEST, problem.to_owned()).into_response()
}

async fn answer_ready(State(webhook): Shared) -> (StatusCode, &'static str) {
    match webhook.missing() {
        None => (StatusCode::OK, "ok"),
        Some(missing) => (StatusCode::SERVICE_UNAVAILABLE, missing),
    }
}

async fn answer_metrics(State(webhook): Shared) -> String {
    webhook.metrics.text(webhook.reporter.dropped(), webhook.serving.expiry())
}
