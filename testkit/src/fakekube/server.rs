//! HTTP: from a request to the operation that it asks for, and back.
//!
//! No authentication and no TLS: it listens on loopback for tests and the demo.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use serde_json::{Value, json};

use super::asked::Asked;
use super::cluster::{Cluster, Target};
use super::discovery;
use super::error::{ApiError, success};
use super::event_form::to_served;
use super::fault::Call;
use super::list::{self, Selection};
use super::logs::Follow;
use super::object::Object;
use super::patch::Patch;
use super::pod::{self, LogQuery};
use super::query::Query;
use super::resource::StatusRule;
use super::route::Route;
use super::strategy::Part;
use super::watch;
use super::write::{self, Deleted};

/// The real server's limit is 3 MiB.
const MAX_BODY: usize = 3 * 1024 * 1024;

/// The routes of the server.
pub(crate) fn router(cluster: Arc<Cluster>) -> Router {
    Router::new().fallback(serve).with_state(cluster)
}

async fn serve(State(cluster): State<Arc<Cluster>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    if let Some(answer) = observed(&parts.method, &parts.uri, &cluster) {
        return json_response(StatusCode::OK, &answer);
    }
    let asked = async {
        Ok(Asked {
            route: Route::of(&cluster, parts.uri.path())?,
            query: Query::of(&parts.uri)?,
            method: parts.method,
            headers: parts.headers,
            body: axum::body::to_bytes(body, MAX_BODY)
                .await
                .map_err(|error| ApiError::new(413, "RequestEntityTooLarge", error.to_string()))?,
        })
    };
    match asked.await {
        Ok(asked) => with_faults(cluster, asked).await.unwrap_or_else(|error| refuse(&error)),
        Err(error) => refuse(&error),
    }
}

/// Discovery and health: answered without faults, so that a client can start.
fn observed(method: &Method, uri: &Uri, cluster: &Cluster) -> Option<Value> {
    if method != Method::GET {
        return None;
    }
    match uri.path() {
        "/healthz" | "/livez" | "/readyz" => Some(json!("ok")),
        path => discovery::answer(cluster, path),
    }
}

async fn with_faults(cluster: Arc<Cluster>, asked: Asked) -> Result<Response, ApiError> {
    let outcome = cluster.faults.strike(&Call {
        verb: asked.verb(),
        resource: &asked.route.resource.plural,
        subresource: asked.route.subresource.as_deref().unwrap_or_default(),
        name: asked.route.name.as_deref().unwrap_or_default(),
    });
    if !outcome.delay.is_zero() {
        tokio::time::sleep(outcome.delay).await;
    }
    if let Some(refusal) = outcome.refusal {
        return Err(refusal);
    }
    let response = dispatch(cluster, asked).await;
    match outcome.lost_reply {
        Some(lost) => Err(lost),
        None => response,
    }
}

async fn dispatch(cluster: Arc<Cluster>, asked: Asked) -> Result<Response, ApiError> {
    let Some(target) = asked.route.target() else {
        return collection(cluster, asked).await;
    };
    let core_pod = target.resource.is_core("pods");
    match asked.route.subresource.as_deref() {
        None => object(&cluster, &asked, &target, Part::Main).await,
        Some("status") if target.resource.status != StatusRule::Absent => {
            object(&cluster, &asked, &target, Part::Status).await
        }
        Some("binding") if core_pod && asked.method == Method::POST => {
            let status = pod::bind(&cluster, &target, asked.json()?, asked.keep()).await?;
            Ok(json_response(StatusCode::CREATED, &status))
        }
        Some("eviction") if core_pod && asked.method == Method::POST => {
            let status = pod::evict(&cluster, &target, asked.json()?, asked.keep()).await?;
            Ok(json_response(StatusCode::CREATED, &status))
        }
        Some("log") if core_pod && asked.method == Method::GET => {
            pod_log(&cluster, &asked, &target).await
        }
        Some(_) => Err(ApiError::path_not_found()),
    }
}

async fn collection(cluster: Arc<Cluster>, asked: Asked) -> Result<Response, ApiError> {
    let resource = Arc::clone(&asked.route.resource);
    let namespace = asked.route.namespace.as_deref();
    match asked.method.as_str() {
        "GET" => {
            let selection = Selection::new(&resource, namespace, &asked.query)?;
            let form = asked.form();
            if asked.query.is_set("watch") {
                let lines = watch::follow(cluster, selection, &asked.query, form)?;
                return Ok(([json_type()], Body::from_stream(lines)).into_response());
            }
            let page = list::page(&cluster, &selection, &asked.query)?;
            Ok(json_response(StatusCode::OK, &form.list(&resource, &page)))
        }
        "POST" => {
            let (body, keep) = (asked.json()?, asked.keep());
            let made = write::create(&cluster, &resource, namespace, body, keep).await?;
            Ok(json_response(StatusCode::CREATED, &asked.form().one(&resource, &made)))
        }
        "DELETE" => delete_collection(&cluster, &asked).await,
        _ => Err(ApiError::method_not_allowed()),
    }
}

async fn delete_collection(cluster: &Cluster, asked: &Asked) -> Result<Response, ApiError> {
    let resource = &asked.route.resource;
    let selection = Selection::new(resource, asked.route.namespace.as_deref(), &asked.query)?;
    let page = list::page(cluster, &selection, &asked.query)?;
    let options = asked.delete_options()?;
    for object in &page.objects {
        let target = Target::new(resource, Some(object.namespace()), object.name());
        match write::delete(cluster, &target, &options, asked.keep()).await {
            Err(error) if error.code != 404 => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(json_response(StatusCode::OK, &asked.form().list(resource, &page)))
}

async fn object(
    cluster: &Cluster,
    asked: &Asked,
    target: &Target,
    part: Part,
) -> Result<Response, ApiError> {
    let resource = &target.resource;
    let found =
        |object: &Object| json_response(StatusCode::OK, &asked.form().one(resource, object));
    match asked.method.as_str() {
        "GET" => target.fetch(cluster).map(|object| found(&object)),
        "PUT" => {
            let body = asked.json()?;
            let keep = asked.keep();
            let propose = |_: &Object| Ok(body.clone());
            let stored = write::update(cluster, target, part, keep, propose).await?;
            Ok(found(&stored))
        }
        "PATCH" => patch(cluster, asked, target, part).await,
        "DELETE" if part == Part::Main => {
            let options = asked.delete_options()?;
            let deleted = write::delete(cluster, target, &options, asked.keep()).await?;
            Ok(deletion_response(asked, target, &deleted))
        }
        _ => Err(ApiError::method_not_allowed()),
    }
}

async fn patch(
    cluster: &Cluster,
    asked: &Asked,
    target: &Target,
    part: Part,
) -> Result<Response, ApiError> {
    let resource = &target.resource;
    let patch = Patch::decode(resource, asked.header(header::CONTENT_TYPE), &asked.body)?;
    if let (Patch::Apply(body), Part::Main, Err(_)) = (&patch, part, target.fetch(cluster)) {
        let mut body = body.clone();
        if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.entry("name").or_insert_with(|| target.name.clone().into());
        }
        let namespace = target.namespace.as_deref();
        let made = write::create(cluster, resource, namespace, body, asked.keep()).await?;
        return Ok(json_response(StatusCode::CREATED, &asked.form().one(resource, &made)));
    }
    let propose = |current: &Object| patch.apply(resource, to_served(resource, current));
    let stored = write::update(cluster, target, part, asked.keep(), propose).await?;
    Ok(json_response(StatusCode::OK, &asked.form().one(resource, &stored)))
}

async fn pod_log(cluster: &Cluster, asked: &Asked, target: &Target) -> Result<Response, ApiError> {
    let tail = asked.query.number("tailLines")?;
    let query = LogQuery {
        container: asked.query.text("container").map(str::to_owned),
        follow: if asked.query.is_set("follow") { Follow::UntilEnd } else { Follow::UntilNow },
        tail_lines: tail.map(|lines| usize::try_from(lines).unwrap_or(usize::MAX)),
    };
    let output = pod::log(cluster, target, query).await?;
    let text = (header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(([text], Body::from_stream(output.map(Ok::<_, Infallible>))).into_response())
}

fn deletion_response(asked: &Asked, target: &Target, deleted: &Deleted) -> Response {
    let resource = &target.resource;
    match deleted {
        Deleted::Terminating(object) => {
            json_response(StatusCode::OK, &asked.form().one(resource, object))
        }
        // Pods come back as they were; most other kinds only as a Status.
        Deleted::Gone(object) if resource.is_core("pods") => {
            json_response(StatusCode::OK, &asked.form().one(resource, object))
        }
        Deleted::Gone(object) => {
            let details = json!({
                "name": object.name(),
                "group": resource.group,
                "kind": resource.plural,
                "uid": object.uid(),
            });
            json_response(StatusCode::OK, &success(200, details))
        }
    }
}

fn json_type() -> (header::HeaderName, HeaderValue) {
    (header::CONTENT_TYPE, HeaderValue::from_static("application/json"))
}

fn json_response(code: StatusCode, body: &Value) -> Response {
    (code, [json_type()], body.to_string()).into_response()
}

fn refuse(error: &ApiError) -> Response {
    let code = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json_response(code, &error.to_status());
    if let Some(seconds) = error.retry_after() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
