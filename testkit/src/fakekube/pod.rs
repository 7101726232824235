//! The pod's own subresources: `binding`, `eviction` and `log`.
//!
//! Binding follows facts/kubernetes.md 6.9: one write sets the node, merges the Binding's
//! annotations into the pod and sets `PodScheduled`; `uid` and `resourceVersion` are preconditions.

use std::sync::Arc;

use axum::body::Bytes;
use futures::stream::BoxStream;
use serde_json::{Map, Value, json};

use super::admission::{Operation, Review};
use super::cluster::{Cluster, Target};
use super::error::{ApiError, success};
use super::identity::timestamp;
use super::lifecycle::DeleteOptions;
use super::logs::LogRequest;
use super::object::{Object, as_map};
use super::store::Write;
use super::write::{self, Keep};

/// Binds a pod to a node, once.
pub(crate) async fn bind(
    cluster: &Cluster,
    target: &Target,
    body: Value,
    keep: Keep,
) -> Result<Value, ApiError> {
    let binding = posted(cluster, target, "binding", body).await?;
    let node = binding.text("/target/name").unwrap_or_default().to_owned();
    if node.is_empty() {
        return Err(invalid_binding(target, "target.name", "Required value"));
    }
    let kind = binding.text("/target/kind").unwrap_or_default();
    if !matches!(kind, "" | "Node") {
        let why = format!("Unsupported value: \"{kind}\": supported values: \"Node\"");
        return Err(invalid_binding(target, "target.kind", &why));
    }
    let preconditions = DeleteOptions {
        uid: Some(binding.uid().to_owned()).filter(|uid| !uid.is_empty()),
        resource_version: Some(binding.version_text().to_owned()).filter(|v| !v.is_empty()),
        grace_seconds: None,
    };
    loop {
        let pod = target.fetch(cluster)?;
        preconditions.check(&target.resource, &pod)?;
        may_bind(&pod).map_err(|why| binding_conflict(target, &why))?;
        let bound = bound(&pod, &node, &binding);
        if keep == Keep::DryRun {
            break;
        }
        if cluster.commit(&target.key(), Write::Replace(pod.revision(), bound)).is_ok() {
            break;
        }
    }
    Ok(success(201, Value::Null))
}

/// Evicts a pod: a delete that a disruption budget could refuse (none are kept here; inject 429).
pub(crate) async fn evict(
    cluster: &Cluster,
    target: &Target,
    body: Value,
    keep: Keep,
) -> Result<Value, ApiError> {
    let eviction = posted(cluster, target, "eviction", body).await?;
    let options = eviction.value().get("deleteOptions").unwrap_or(&Value::Null);
    write::delete_admitted(cluster, target, &DeleteOptions::from_body(options), keep)?;
    Ok(success(201, Value::Null))
}

/// Opens the output of one of the pod's containers.
pub(crate) async fn log(
    cluster: &Cluster,
    target: &Target,
    asked: LogQuery,
) -> Result<BoxStream<'static, Bytes>, ApiError> {
    let pod = target.fetch(cluster)?;
    let container = container_name(&pod, asked.container.as_deref())?;
    let Some(provider) = cluster.logs() else {
        let why = format!("the server has no log provider for pod \"{}\"", target.name);
        return Err(ApiError::new(500, "InternalError", why));
    };
    let request = LogRequest {
        namespace: pod.namespace().to_owned(),
        pod: pod.name().to_owned(),
        uid: pod.uid().to_owned(),
        container,
        follow: asked.follow,
        tail_lines: asked.tail_lines,
    };
    provider.open(request).await
}

/// What the query of a log request says.
pub(crate) struct LogQuery {
    pub(crate) container: Option<String>,
    pub(crate) follow: super::logs::Follow,
    pub(crate) tail_lines: Option<usize>,
}

/// The posted object after its checks and admission, which sees it and not the pod.
async fn posted(
    cluster: &Cluster,
    target: &Target,
    subresource: &'static str,
    body: Value,
) -> Result<Object, ApiError> {
    let object = Object::new(body)?;
    if object.name() != target.name {
        return Err(ApiError::bad_request(
            "name in URL does not match name in Binding or Eviction object",
        ));
    }
    target.fetch(cluster)?;
    let review = Review {
        operation: Operation::Create,
        resource: Arc::clone(&target.resource),
        subresource: Some(subresource),
        namespace: target.namespace.clone().unwrap_or_default(),
        name: target.name.clone(),
        object: object.value().clone(),
        old_object: Value::Null,
    };
    Ok(cluster.admit(review).await?.unwrap_or(object))
}

fn may_bind(pod: &Object) -> Result<(), String> {
    let name = pod.name();
    if pod.is_terminating() {
        return Err(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if let Some(node) = pod.text("/spec/nodeName").filter(|node| !node.is_empty()) {
        return Err(format!("pod {name} is already assigned to node \"{node}\""));
    }
    let gates = pod.value().pointer("/spec/schedulingGates").and_then(Value::as_array);
    if gates.is_some_and(|gates| !gates.is_empty()) {
        return Err(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    Ok(())
}

fn bound(pod: &Object, node: &str, binding: &Object) -> Object {
    let mut next = pod.clone();
    next.section_mut("spec").insert("nodeName".to_owned(), node.into());
    let added = binding.value().pointer("/metadata/annotations").and_then(Value::as_object);
    if let Some(added) = added {
        let annotations = next.metadata_mut().entry("annotations").or_insert(Value::Null);
        as_map(annotations).extend(added.clone());
    }
    scheduled(next.section_mut("status"));
    next
}

fn scheduled(status: &mut Map<String, Value>) {
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(conditions) = conditions.as_array_mut() else {
        return;
    };
    conditions.retain(|c| c.get("type").and_then(Value::as_str) != Some("PodScheduled"));
    conditions.push(json!({
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": null,
        "lastTransitionTime": timestamp(),
    }));
}

fn binding_conflict(target: &Target, why: &str) -> ApiError {
    let mut error = ApiError::conflict(&target.resource, &target.name, why);
    error.message =
        format!("Operation cannot be fulfilled on pods/binding \"{}\": {why}", target.name);
    error
}

fn invalid_binding(target: &Target, field: &str, why: &str) -> ApiError {
    let mut error = ApiError::invalid(&target.resource, &target.name, field, why);
    error.message = format!("Binding \"{}\" is invalid: {field}: {why}", target.name);
    error
}

fn container_name(pod: &Object, asked: Option<&str>) -> Result<String, ApiError> {
    let names: Vec<&str> = ["containers", "initContainers"]
        .iter()
        .filter_map(|list| pod.value().pointer(&format!("/spec/{list}"))?.as_array())
        .flatten()
        .filter_map(|container| container.get("name")?.as_str())
        .collect();
    match (asked, names.as_slice()) {
        (Some(asked), names) if names.contains(&asked) => Ok(asked.to_owned()),
        (Some(asked), _) => Err(ApiError::bad_request(format!(
            "container {asked} is not valid for pod {}",
            pod.name()
        ))),
        (None, [only]) => Ok((*only).to_owned()),
        (None, names) => Err(ApiError::bad_request(format!(
            "a container name must be specified for pod {}, choose one of: [{}]",
            pod.name(),
            names.join(" ")
        ))),
    }
}
