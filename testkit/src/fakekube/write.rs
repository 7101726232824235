//! Creating, updating and deleting one object: decide, ask admission, compare and set, repeat.
//!
//! The loop is the real server's: a write that lost a race is decided again on the newer object,
//! unless the client named a version, which then no longer matches.

use std::sync::Arc;

use serde_json::Value;

use super::admission::{Operation, Review};
use super::cluster::{Cluster, Target};
use super::error::ApiError;
use super::event_form::to_stored;
use super::lifecycle::{self, DeleteOptions, Deletion};
use super::object::Object;
use super::resource::{ResourceType, Scope};
use super::store::{Stale, Write};
use super::strategy::{self, Part};

/// Whether a write is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// It is stored.
    Store,
    /// It is checked and answered only (`dryRun=All`).
    DryRun,
}

/// What became of a deleted object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Deleted {
    /// It is gone; this was its last state.
    Gone(Arc<Object>),
    /// It is terminating.
    Terminating(Arc<Object>),
}

/// Creates an object from a client's body.
pub(crate) async fn create(
    cluster: &Cluster,
    resource: &Arc<ResourceType>,
    namespace: Option<&str>,
    body: Value,
    keep: Keep,
) -> Result<Arc<Object>, ApiError> {
    let proposed = Object::new(to_stored(resource, body))?;
    let object = strategy::before_create(resource, namespace, proposed)?;
    namespace_is_open(cluster, resource, object.namespace())?;
    let review = Review {
        operation: Operation::Create,
        resource: Arc::clone(resource),
        subresource: None,
        namespace: object.namespace().to_owned(),
        name: object.name().to_owned(),
        object: object.value().clone(),
        old_object: Value::Null,
    };
    let object = match cluster.admit(review).await? {
        Some(changed) => strategy::before_create(resource, namespace, changed)?,
        None => object,
    };
    let object = strategy::identify(resource, object)?;
    let target = Target::new(resource, namespace, object.name());
    if keep == Keep::DryRun {
        return match target.fetch(cluster) {
            Ok(_) => Err(ApiError::already_exists(resource, &target.name)),
            Err(_) => Ok(Arc::new(object)),
        };
    }
    cluster
        .commit(&target.key(), Write::Create(object))
        .map_err(|Stale| ApiError::already_exists(resource, &target.name))
}

/// Updates an object; `propose` makes the client's wish from the current state and may be called
/// again when somebody else was faster.
pub(crate) async fn update(
    cluster: &Cluster,
    target: &Target,
    part: Part,
    keep: Keep,
    propose: impl Fn(&Object) -> Result<Value, ApiError>,
) -> Result<Arc<Object>, ApiError> {
    let resource = &target.resource;
    loop {
        let current = target.fetch(cluster)?;
        let proposed = Object::new(to_stored(resource, propose(&current)?))?;
        let next = strategy::before_update(resource, part, &current, proposed)?;
        let review = Review {
            operation: Operation::Update,
            resource: Arc::clone(resource),
            subresource: (part == Part::Status).then_some("status"),
            namespace: current.namespace().to_owned(),
            name: current.name().to_owned(),
            object: next.value().clone(),
            old_object: current.value().clone(),
        };
        let next = match cluster.admit(review).await? {
            Some(changed) => strategy::before_update(resource, part, &current, changed)?,
            None => next,
        };
        // A write that changes nothing makes no version and no watch event.
        if next == *current {
            return Ok(current);
        }
        if keep == Keep::DryRun {
            return Ok(Arc::new(next));
        }
        let revision = current.revision();
        let write = if lifecycle::is_finished(&next) {
            Write::Remove(revision, next)
        } else {
            Write::Replace(revision, next)
        };
        if let Ok(stored) = cluster.commit(&target.key(), write) {
            return Ok(stored);
        }
    }
}

/// Deletes an object, or starts its deletion.
pub(crate) async fn delete(
    cluster: &Cluster,
    target: &Target,
    options: &DeleteOptions,
    keep: Keep,
) -> Result<Deleted, ApiError> {
    loop {
        let current = target.fetch(cluster)?;
        options.check(&target.resource, &current)?;
        let review = Review {
            operation: Operation::Delete,
            resource: Arc::clone(&target.resource),
            subresource: None,
            namespace: current.namespace().to_owned(),
            name: current.name().to_owned(),
            object: Value::Null,
            old_object: current.value().clone(),
        };
        cluster.admit(review).await?;
        if let Ok(deleted) = remove(cluster, target, &current, options, keep) {
            return Ok(deleted);
        }
    }
}

/// Deletes without admission, as the eviction subresource does after its own.
pub(crate) fn delete_admitted(
    cluster: &Cluster,
    target: &Target,
    options: &DeleteOptions,
    keep: Keep,
) -> Result<Deleted, ApiError> {
    loop {
        let current = target.fetch(cluster)?;
        options.check(&target.resource, &current)?;
        if let Ok(deleted) = remove(cluster, target, &current, options, keep) {
            return Ok(deleted);
        }
    }
}

fn remove(
    cluster: &Cluster,
    target: &Target,
    current: &Arc<Object>,
    options: &DeleteOptions,
    keep: Keep,
) -> Result<Deleted, Stale> {
    let revision = current.revision();
    let key = target.key();
    match lifecycle::deletion(&target.resource, current, options) {
        Deletion::Pending => Ok(Deleted::Terminating(Arc::clone(current))),
        Deletion::Remove | Deletion::Mark(_) if keep == Keep::DryRun => {
            Ok(Deleted::Gone(Arc::clone(current)))
        }
        Deletion::Mark(marked) => {
            cluster.commit(&key, Write::Replace(revision, marked)).map(Deleted::Terminating)
        }
        Deletion::Remove => {
            let last = current.as_ref().clone();
            let gone = cluster.commit(&key, Write::Remove(revision, last))?;
            if target.resource.is_core("namespaces") {
                empty_namespace(cluster, &target.name);
            }
            Ok(Deleted::Gone(gone))
        }
    }
}

/// The work of the namespace controller: everything inside goes with the namespace.
fn empty_namespace(cluster: &Cluster, namespace: &str) {
    cluster.change(|store| {
        let inside: Vec<_> = store
            .all()
            .filter(|(key, _)| key.namespace == namespace)
            .map(|(key, object)| (key.clone(), object.as_ref().clone()))
            .collect();
        for (key, object) in inside {
            // The store is locked, so nobody can have been faster.
            let removed = store.commit(&key, Write::Remove(object.revision(), object));
            debug_assert!(removed.is_ok(), "the object was read under the same lock");
        }
    });
}

fn namespace_is_open(
    cluster: &Cluster,
    resource: &ResourceType,
    namespace: &str,
) -> Result<(), ApiError> {
    if resource.scope == Scope::Cluster {
        return Ok(());
    }
    let Some(namespaces) = cluster.resource("v1", "namespaces") else {
        return Ok(());
    };
    let target = Target::new(&namespaces, None, namespace);
    target.fetch(cluster).map(|_| ())
}
