//! Whether a delete removes an object now, marks it, or changes nothing.
//!
//! A pod on a node stays until the kubelet confirms that its containers are gone, by a delete with
//! grace 0 (facts/kubernetes.md 9); an object with finalizers stays until they are gone.

use serde_json::Value;

use super::error::ApiError;
use super::identity::timestamp_in;
use super::object::Object;
use super::resource::ResourceType;
use super::strategy::uid_mismatch;

/// The options of a delete request that this server acts on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DeleteOptions {
    pub(crate) grace_seconds: Option<i64>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
}

impl DeleteOptions {
    /// Reads `metav1.DeleteOptions`; null stands for none.
    pub(crate) fn from_body(body: &Value) -> Self {
        let text = |pointer: &str| body.pointer(pointer)?.as_str().map(str::to_owned);
        Self {
            grace_seconds: body.get("gracePeriodSeconds").and_then(Value::as_i64),
            uid: text("/preconditions/uid"),
            resource_version: text("/preconditions/resourceVersion"),
        }
    }

    pub(crate) fn check(&self, resource: &ResourceType, current: &Object) -> Result<(), ApiError> {
        if let Some(uid) = self.uid.as_deref().filter(|uid| *uid != current.uid()) {
            let why = uid_mismatch(uid, current.uid());
            return Err(ApiError::conflict(resource, current.name(), &why));
        }
        let version = self.resource_version.as_deref();
        if let Some(wanted) = version.filter(|v| *v != current.version_text()) {
            let why = format!(
                "Precondition failed: ResourceVersion in precondition: {wanted}, ResourceVersion \
                 in object meta: {}",
                current.version_text()
            );
            return Err(ApiError::conflict(resource, current.name(), &why));
        }
        Ok(())
    }
}

/// What a delete request leads to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Deletion {
    /// The object goes now.
    Remove,
    /// The object stays, with this new state.
    Mark(Object),
    /// The object is already on its way and nothing changes.
    Pending,
}

/// Decides a delete request.
pub(crate) fn deletion(
    resource: &ResourceType,
    current: &Object,
    options: &DeleteOptions,
) -> Deletion {
    let grace = grace_seconds(resource, current, options);
    if grace == 0 && !current.has_finalizers() {
        return Deletion::Remove;
    }
    let already = current
        .is_terminating()
        .then(|| current.number("/metadata/deletionGracePeriodSeconds").unwrap_or(0));
    // A second request can only shorten the time.
    if already.is_some_and(|already| already <= grace) {
        return Deletion::Pending;
    }
    let mut marked = current.clone();
    marked.set_metadata("deletionTimestamp", timestamp_in(grace));
    marked.set_metadata("deletionGracePeriodSeconds", grace);
    Deletion::Mark(marked)
}

/// Whether an updated object has nothing left to wait for.
pub(crate) fn is_finished(object: &Object) -> bool {
    object.is_terminating()
        && !object.has_finalizers()
        && object.number("/metadata/deletionGracePeriodSeconds").unwrap_or(0) == 0
}

fn grace_seconds(resource: &ResourceType, current: &Object, options: &DeleteOptions) -> i64 {
    if !resource.is_core("pods") {
        return 0;
    }
    let on_a_node = current.text("/spec/nodeName").is_some_and(|node| !node.is_empty());
    let ended = matches!(current.text("/status/phase"), Some("Succeeded" | "Failed"));
    if !on_a_node || ended {
        return 0;
    }
    options
        .grace_seconds
        .or_else(|| current.number("/spec/terminationGracePeriodSeconds"))
        .unwrap_or(30)
        .max(0)
}
