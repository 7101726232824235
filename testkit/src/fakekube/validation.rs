//! The refusals with code 422 that users of this project can run into.
//!
//! Not a schema check: fields of unknown name or wrong type pass.

use serde_json::Value;

use super::error::ApiError;
use super::object::Object;
use super::resource::ResourceType;

/// Checks an object that is about to be stored.
pub(crate) fn check(resource: &ResourceType, object: &Object) -> Result<(), ApiError> {
    if !is_subdomain(object.name()) && !resource.group.starts_with("rbac.") {
        let why = format!(
            "Invalid value: \"{}\": a lowercase RFC 1123 subdomain must consist of lower case \
             alphanumeric characters, '-' or '.', and must start and end with an alphanumeric \
             character",
            object.name()
        );
        return Err(ApiError::invalid(resource, object.name(), "metadata.name", &why));
    }
    for field in ["labels", "annotations"] {
        string_map(resource, object, field)?;
    }
    if resource.is_core("pods") {
        containers(resource, object)?;
    }
    if resource.plural == "events" {
        event(resource, object)?;
    }
    Ok(())
}

/// A pod's spec is fixed, but for a few fields.
pub(crate) fn pod_spec_update(
    resource: &ResourceType,
    current: &Object,
    next: &Object,
) -> Result<(), ApiError> {
    if fixed_part(current) == fixed_part(next) {
        return Ok(());
    }
    Err(ApiError::invalid(
        resource,
        current.name(),
        "spec",
        "Forbidden: pod updates may not change fields other than `spec.containers[*].image`, \
         `spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, `spec.tolerations` (only \
         additions to existing tolerations), `spec.terminationGracePeriodSeconds` (allow it to be \
         set to 1 if it was previously negative)",
    ))
}

/// A terminating object may lose finalizers, never gain one.
pub(crate) fn no_new_finalizers(
    resource: &ResourceType,
    current: &Object,
    next: &Object,
) -> Result<(), ApiError> {
    let list = |object: &Object| -> Vec<Value> {
        let list = object.value().pointer("/metadata/finalizers");
        list.and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let before = list(current);
    if list(next).iter().all(|finalizer| before.contains(finalizer)) {
        return Ok(());
    }
    Err(ApiError::invalid(
        resource,
        current.name(),
        "metadata.finalizers",
        "Forbidden: no new finalizers can be added if the object is being deleted",
    ))
}

fn fixed_part(pod: &Object) -> Value {
    let mut spec = pod.value().get("spec").cloned().unwrap_or_default();
    if let Some(fields) = spec.as_object_mut() {
        for field in [
            "activeDeadlineSeconds",
            "tolerations",
            "terminationGracePeriodSeconds",
            "schedulingGates",
        ] {
            fields.remove(field);
        }
        for list in ["containers", "initContainers"] {
            let containers = fields.get_mut(list).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                container.as_object_mut().map(|fields| fields.remove("image"));
            }
        }
    }
    spec
}

fn is_subdomain(name: &str) -> bool {
    let inside = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let edge = |b: Option<u8>| b.is_some_and(|b| b != b'-');
    name.len() <= 253
        && name.split('.').all(|label| {
            label.bytes().all(inside) && edge(label.bytes().next()) && edge(label.bytes().last())
        })
}

fn string_map(resource: &ResourceType, object: &Object, field: &str) -> Result<(), ApiError> {
    let Some(map) = object.value().pointer(&format!("/metadata/{field}")) else {
        return Ok(());
    };
    let strings = map.as_object().is_some_and(|map| map.values().all(Value::is_string));
    if !strings {
        // The real server fails to decode such a body.
        return Err(ApiError::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: json: cannot unmarshal \
             ObjectMeta.metadata.{field} into Go value of type string",
            resource.kind, resource.version, resource.kind
        )));
    }
    if field == "labels" {
        for (key, value) in map.as_object().into_iter().flatten() {
            label(resource, object, key, value.as_str().unwrap_or_default())?;
        }
    }
    Ok(())
}

fn label(resource: &ResourceType, object: &Object, key: &str, value: &str) -> Result<(), ApiError> {
    let word = |text: &str| {
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        text.len() <= 63
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
            && edge(text.chars().next())
            && edge(text.chars().last())
    };
    let key_is_valid = match key.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && word(name),
        None => word(key),
    };
    if key_is_valid && (value.is_empty() || word(value)) {
        return Ok(());
    }
    let why = format!(
        "Invalid value: \"{key}={value}\": a valid label must consist of at most 63 alphanumeric \
         characters, '-', '_' or '.', and must start and end with an alphanumeric character"
    );
    Err(ApiError::invalid(resource, object.name(), "metadata.labels", &why))
}

fn containers(resource: &ResourceType, pod: &Object) -> Result<(), ApiError> {
    let containers = pod.value().pointer("/spec/containers").and_then(Value::as_array);
    let Some(containers) = containers.filter(|list| !list.is_empty()) else {
        return Err(ApiError::invalid(resource, pod.name(), "spec.containers", "Required value"));
    };
    for (index, container) in containers.iter().enumerate() {
        if container.get("name").and_then(Value::as_str).unwrap_or_default().is_empty() {
            let field = format!("spec.containers[{index}].name");
            return Err(ApiError::invalid(resource, pod.name(), &field, "Required value"));
        }
        extended_resources(resource, pod, index, container)?;
    }
    Ok(())
}

/// Extended resources can't be overcommitted: requests equal limits, and both are whole.
fn extended_resources(
    resource: &ResourceType,
    pod: &Object,
    index: usize,
    container: &Value,
) -> Result<(), ApiError> {
    let side = |side: &str| container.pointer(&format!("/resources/{side}"));
    let requests = side("requests").and_then(Value::as_object).into_iter().flatten();
    for (name, request) in requests.filter(|(name, _)| name.contains('/')) {
        if name.starts_with("kubernetes.io/") {
            continue;
        }
        let limit = side("limits").and_then(|limits| limits.get(name));
        let field = format!("spec.containers[{index}].resources.requests");
        if limit.map(amount) != Some(amount(request)) {
            let why = format!(
                "Invalid value: {}: must be equal to {name} limit of {}",
                amount(request),
                limit.map_or("0".to_owned(), amount)
            );
            return Err(ApiError::invalid(resource, pod.name(), &field, &why));
        }
        if amount(request).ends_with('m') || amount(request).contains('.') {
            let why = format!("Invalid value: {}: must be an integer", amount(request));
            return Err(ApiError::invalid(resource, pod.name(), &field, &why));
        }
    }
    Ok(())
}

fn amount(quantity: &Value) -> String {
    quantity.as_str().map_or_else(|| quantity.to_string(), str::to_owned)
}

/// An event lives in the namespace of its object; those of cluster-scoped objects in `default`.
fn event(resource: &ResourceType, event: &Object) -> Result<(), ApiError> {
    let about = event.text("/involvedObject/namespace").unwrap_or_default();
    let here = event.namespace();
    let agrees = if about.is_empty() { here == "default" } else { about == here };
    if !agrees {
        return Err(ApiError::invalid(
            resource,
            event.name(),
            "involvedObject.namespace",
            &format!("Invalid value: \"{about}\": does not match event.namespace"),
        ));
    }
    if !resource.is_new_style_event() {
        return Ok(());
    }
    for (pointer, field) in [
        ("/eventTime", "eventTime"),
        ("/reportingComponent", "reportingController"),
        ("/reportingInstance", "reportingInstance"),
        ("/action", "action"),
        ("/reason", "reason"),
        ("/type", "type"),
    ] {
        if event.text(pointer).unwrap_or_default().is_empty() {
            return Err(ApiError::invalid(resource, event.name(), field, "Required value"));
        }
    }
    if event.text("/message").is_some_and(|note| note.len() > 1024) {
        let why = "Invalid value: can have at most 1024 characters";
        return Err(ApiError::invalid(resource, event.name(), "note", why));
    }
    Ok(())
}
