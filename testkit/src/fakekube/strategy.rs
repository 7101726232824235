//! What a write may change: the part of the real server called the REST strategy of a kind.
//!
//! Everything is a function from the current and the proposed object to the one to store; the
//! version check, admission and the write itself are in `write`.

use super::defaults;
use super::error::ApiError;
use super::identity::{new_uid, suffix, timestamp};
use super::object::Object;
use super::resource::{Generation, Origin, ResourceType, Scope, StatusRule};
use super::validation;

/// Which half of an object a write is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Everything but the status.
    Main,
    /// The status subresource.
    Status,
}

/// Metadata that only the server writes, whatever a client sends.
const SERVER_OWNED: [&str; 6] = [
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
];

/// Checks and completes an object before admission and creation.
pub(crate) fn before_create(
    resource: &ResourceType,
    namespace: Option<&str>,
    mut object: Object,
) -> Result<Object, ApiError> {
    type_meta(resource, &mut object)?;
    place(resource, namespace, &mut object)?;
    if !object.version_text().is_empty() {
        return Err(ApiError::bad_request(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    named(resource, &object)?;
    for field in SERVER_OWNED.iter().chain(&["managedFields", "selfLink"]) {
        object.metadata_mut().remove(*field);
    }
    // Nodes register themselves with their status in one request (the kubelet does).
    if resource.status != StatusRule::Absent && !resource.is_core("nodes") {
        object.fields_mut().remove("status");
    }
    defaults::fill(resource, &mut object);
    Ok(object)
}

/// Gives an admitted object its identity; webhooks see it without (facts/kubernetes.md 8.2).
pub(crate) fn identify(resource: &ResourceType, mut object: Object) -> Result<Object, ApiError> {
    if object.name().is_empty() {
        let prefix = object.text("/metadata/generateName").unwrap_or_default();
        let name = format!("{prefix}{}", suffix());
        object.set_metadata("name", name);
    }
    validation::check(resource, &object)?;
    object.set_metadata("uid", new_uid());
    object.set_metadata("creationTimestamp", timestamp());
    if resource.generation == Generation::Tracked {
        object.set_metadata("generation", 1);
    }
    Ok(object)
}

/// Combines a proposed object with the current one by the rules of the kind.
pub(crate) fn before_update(
    resource: &ResourceType,
    part: Part,
    current: &Object,
    proposed: Object,
) -> Result<Object, ApiError> {
    let mut next = proposed;
    type_meta(resource, &mut next)?;
    same_identity(resource, current, &next)?;
    for field in SERVER_OWNED.iter().chain(&["name", "namespace", "generateName"]) {
        next.copy_metadata(field, current);
    }
    next.metadata_mut().remove("managedFields");
    match part {
        Part::Main => main_part(resource, current, &mut next)?,
        Part::Status => status_part(resource, current, &mut next),
    }
    validation::check(resource, &next)?;
    Ok(next)
}

fn main_part(resource: &ResourceType, current: &Object, next: &mut Object) -> Result<(), ApiError> {
    if resource.status != StatusRule::Absent {
        next.copy_field("status", current);
    }
    if resource.is_core("pods") {
        validation::pod_spec_update(resource, current, next)?;
    }
    if current.is_terminating() {
        validation::no_new_finalizers(resource, current, next)?;
    }
    let changed = current.value().get("spec") != next.value().get("spec");
    if resource.generation == Generation::Tracked && changed {
        let generation = current.number("/metadata/generation").unwrap_or(0);
        next.set_metadata("generation", generation + 1);
    }
    Ok(())
}

/// The status strategies: spec and owners stay, and for custom resources all metadata.
fn status_part(resource: &ResourceType, current: &Object, next: &mut Object) {
    let frozen: Vec<String> = current
        .value()
        .as_object()
        .into_iter()
        .chain(next.value().as_object())
        .flat_map(|fields| fields.keys())
        .filter(|field| !matches!(field.as_str(), "status" | "metadata"))
        .cloned()
        .collect();
    for field in frozen {
        next.copy_field(&field, current);
    }
    if resource.status == StatusRule::MetadataFrozen {
        next.copy_field("metadata", current);
    } else {
        next.copy_metadata("ownerReferences", current);
        next.copy_metadata("finalizers", current);
    }
}

fn type_meta(resource: &ResourceType, object: &mut Object) -> Result<(), ApiError> {
    let expected = [("apiVersion", resource.api_version()), ("kind", resource.kind.clone())];
    for (field, expected) in expected {
        let given = object.text(&format!("/{field}")).unwrap_or_default();
        if !given.is_empty() && given != expected {
            return Err(ApiError::bad_request(format!(
                "the {field} in the data ({given}) does not match the expected one ({expected})"
            )));
        }
        object.fields_mut().insert(field.to_owned(), expected.into());
    }
    Ok(())
}

fn place(
    resource: &ResourceType,
    namespace: Option<&str>,
    object: &mut Object,
) -> Result<(), ApiError> {
    match (resource.scope, namespace) {
        (Scope::Cluster, _) => {
            object.metadata_mut().remove("namespace");
        }
        (Scope::Namespaced, Some(namespace)) => {
            let given = object.namespace();
            if !given.is_empty() && given != namespace {
                return Err(ApiError::bad_request(
                    "the namespace of the provided object does not match the namespace sent on \
                     the request",
                ));
            }
            object.set_metadata("namespace", namespace);
        }
        (Scope::Namespaced, None) => {
            return Err(ApiError::bad_request("an empty namespace may not be set during creation"));
        }
    }
    Ok(())
}

fn named(resource: &ResourceType, object: &Object) -> Result<(), ApiError> {
    let prefix = object.text("/metadata/generateName").unwrap_or_default();
    if !object.name().is_empty() || !prefix.is_empty() {
        return Ok(());
    }
    let why = "Required value: name or generateName is required";
    Err(ApiError::invalid(resource, "", "metadata.name", why))
}

fn same_identity(resource: &ResourceType, current: &Object, next: &Object) -> Result<(), ApiError> {
    if next.name() != current.name() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            next.name(),
            current.name()
        )));
    }
    if !next.namespace().is_empty() && next.namespace() != current.namespace() {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if !next.uid().is_empty() && next.uid() != current.uid() {
        let why = uid_mismatch(next.uid(), current.uid());
        return Err(ApiError::conflict(resource, current.name(), &why));
    }
    if next.version_text().is_empty() {
        if resource.needs_version_to_update() {
            return Err(ApiError::invalid(
                resource,
                current.name(),
                "metadata.resourceVersion",
                "Invalid value: 0x0: must be specified for an update",
            ));
        }
    } else if next.version_text() != current.version_text() {
        return Err(ApiError::modified(resource, current.name()));
    }
    Ok(())
}

/// The sentence of a failed UID precondition.
pub(crate) fn uid_mismatch(wanted: &str, actual: &str) -> String {
    format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {actual}")
}

/// Whether a kind takes strategic merge patches.
pub(crate) fn takes_strategic(resource: &ResourceType) -> bool {
    resource.origin == Origin::BuiltIn
}
