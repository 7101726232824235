//! The routes of Aliyun's extender, and those that probes and Prometheus ask.
//!
//! Every answer to kube-scheduler has the code 200: of any other it doesn't read the body, and
//! people would never see the reason (facts/kubernetes.md 6.3).

use std::sync::Arc;
use std::time::Instant;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use mpshare_api::extender::{
    BIND, BindingArgs, BindingResult, FILTER, FilterArgs, FilterResult, Inspection, PREFIX,
    PRIORITIZE,
};
use serde::Serialize;

use crate::extender::Extender;
use crate::metrics::Outcome;
use crate::{bind, filter, inspect};

/// The longest question: 5,000 whole nodes of 20 KiB.
const MAX_BODY: usize = 128 * 1024 * 1024;

type Shared = State<Arc<Extender>>;

/// All routes.
pub(crate) fn router(extender: Arc<Extender>) -> Router {
    let verb = |name: &str| format!("/{name}");
    let scheduler = Router::new()
        .route(&verb(FILTER), post(answer_filter))
        .route(&verb(PRIORITIZE), post(answer_prioritize))
        .route(&verb(BIND), post(answer_bind))
        .route("/inspect", get(answer_inspect))
        .route("/inspect/{node}", get(answer_inspect_node))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(Arc::clone(&extender));
    status(extender).nest(PREFIX, scheduler)
}

/// The routes that tell how the extender is. Nothing can be changed by them, and they name no pod.
pub(crate) fn status(extender: Arc<Extender>) -> Router {
    Router::new()
        .route("/version", get(env!("CARGO_PKG_VERSION")))
        .route("/healthz", get("ok"))
        .route("/readyz", get(answer_ready))
        .route("/metrics", get(answer_metrics))
        .with_state(extender)
}

async fn answer_filter(State(extender): Shared, body: Bytes) -> Response {
    let begun = Instant::now();
    let result = match serde_json::from_slice::<FilterArgs<'_>>(&body) {
        Ok(args) => filter::filter(&extender, args),
        Err(error) => FilterResult { error: unreadable(&error), ..FilterResult::default() },
    };
    let outcome = if result.error.is_empty() { Outcome::Ok } else { Outcome::Failed };
    let answer = json(&result, body.len());
    extender.metrics.count("filter", outcome, begun.elapsed());
    answer
}

async fn answer_prioritize(State(extender): Shared, body: Bytes) -> Response {
    let begun = Instant::now();
    let (outcome, scores) = match serde_json::from_slice::<FilterArgs<'_>>(&body) {
        Ok(args) => (Outcome::Ok, filter::prioritize(&extender, args)),
        Err(error) => {
            tracing::warn!(%error, "a question for scores can't be read");
            (Outcome::Failed, Vec::new())
        }
    };
    let answer = json(&scores, body.len());
    extender.metrics.count("prioritize", outcome, begun.elapsed());
    answer
}

/// An answer about as long as the question, written in one go.
fn json(answer: &impl Serialize, size: usize) -> Response {
    let mut text = Vec::with_capacity(size * 2);
    match serde_json::to_writer(&mut text, answer) {
        Ok(()) => ([(CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// The bind goes on when kube-scheduler hangs up: its end has to be learnt in any case.
async fn answer_bind(State(extender): Shared, body: Bytes) -> Json<BindingResult> {
    let begun = Instant::now();
    let binder = Arc::clone(&extender);
    let task = tokio::spawn(async move {
        let args: BindingArgs =
            serde_json::from_slice(&body).map_err(|error| unreadable(&error))?;
        bind::bind(&binder, &args).await.map_err(|error| error.to_string()).inspect_err(|error| {
            tracing::warn!(pod = args.pod_name, node = args.node, error, "not bound");
        })
    });
    let result = task.await.unwrap_or_else(|error| Err(error.to_string()));
    let outcome = if result.is_ok() { Outcome::Ok } else { Outcome::Failed };
    extender.metrics.count("bind", outcome, begun.elapsed());
    Json(BindingResult { error: result.err().unwrap_or_default() })
}

async fn answer_inspect(State(extender): Shared) -> Json<Inspection> {
    Json(inspect::all(&extender.ledger()))
}

async fn answer_inspect_node(
    State(extender): Shared,
    Path(node): Path<String>,
) -> Json<Inspection> {
    Json(inspect::one(&extender.ledger(), &node))
}

async fn answer_ready(State(extender): Shared) -> (StatusCode, &'static str) {
    if extender.is_ready() {
        (StatusCode::OK, "ok")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "nodes and pods aren't listed yet")
    }
}

async fn answer_metrics(State(extender): Shared) -> String {
    extender.metrics.text(&extender.ledger())
}

fn unreadable(error: &serde_json::Error) -> String {
    format!("the call can't be read: {error}")
}
