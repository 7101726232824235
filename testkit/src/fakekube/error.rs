//! Refusals of the API server, in the form that clients decode: `metav1.Status`.
//!
//! Reasons, codes and sentences are those of the real server, because clients act on them:
//! kube's watcher looks at code 410, kubectl prints the message, retry loops match on the reason.

use serde_json::{Value, json};

use super::resource::ResourceType;

/// A refusal with its HTTP code, its machine-readable reason and the sentence for people.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// The HTTP status code, repeated in the body.
    pub code: u16,
    /// The reason of `metav1.Status`, such as `NotFound` or `Conflict`.
    pub reason: &'static str,
    /// What happened, in the real server's words.
    pub message: String,
    /// The `details` object of the Status, or null.
    pub details: Value,
}

impl ApiError {
    /// A refusal without details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Value::Null }
    }

    /// The refusal that a bare HTTP code stands for, as injected faults need it.
    pub fn from_code(code: u16) -> Self {
        let reason = match code {
            400 => "BadRequest",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            409 => "Conflict",
            410 => "Expired",
            422 => "Invalid",
            429 => "TooManyRequests",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "InternalError",
        };
        Self::new(code, reason, format!("injected fault: answered with {code}"))
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn path_not_found() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    }

    pub(crate) fn not_found(resource: &ResourceType, name: &str) -> Self {
        let what = resource.qualified();
        Self::new(404, "NotFound", format!("{what} \"{name}\" not found")).about(resource, name)
    }

    pub(crate) fn already_exists(resource: &ResourceType, name: &str) -> Self {
        let what = resource.qualified();
        Self::new(409, "AlreadyExists", format!("{what} \"{name}\" already exists"))
            .about(resource, name)
    }

    pub(crate) fn conflict(resource: &ResourceType, name: &str, why: &str) -> Self {
        let what = resource.qualified();
        Self::new(
            409,
            "Conflict",
            format!("Operation cannot be fulfilled on {what} \"{name}\": {why}"),
        )
        .about(resource, name)
    }

    pub(crate) fn modified(resource: &ResourceType, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and \
             try again",
        )
    }

    pub(crate) fn invalid(resource: &ResourceType, name: &str, field: &str, why: &str) -> Self {
        let kind = &resource.kind;
        let mut error =
            Self::new(422, "Invalid", format!("{kind} \"{name}\" is invalid: {field}: {why}"))
                .about(resource, name);
        if let Some(details) = error.details.as_object_mut() {
            details.insert(
                "causes".to_owned(),
                json!([{"reason": "FieldValueInvalid", "message": why, "field": field}]),
            );
        }
        error
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// The refusal of a version that is older than the kept history.
    pub(crate) fn too_old(asked: u64, oldest: u64) -> Self {
        Self::expired(format!("too old resource version: {asked} ({oldest})"))
    }

    pub(crate) fn throttled(retry_after_seconds: u32) -> Self {
        let mut error = Self::new(
            429,
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later",
        );
        error.details = json!({"retryAfterSeconds": retry_after_seconds});
        error
    }

    /// Seconds for the `Retry-After` header, where the details carry them.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        self.details.get("retryAfterSeconds")?.as_u64()
    }

    /// The body that a client decodes.
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        });
        if let (Some(status), false) = (status.as_object_mut(), self.details.is_null()) {
            status.insert("details".to_owned(), self.details.clone());
        }
        status
    }

    fn about(mut self, resource: &ResourceType, name: &str) -> Self {
        self.details = json!({
            "name": name,
            "group": resource.group,
            // The field is called kind and holds the plural resource name: so does the real one.
            "kind": resource.plural,
        });
        self
    }
}

/// The body of a request that went well and has no object to return.
pub(crate) fn success(code: u16, details: Value) -> Value {
    let mut status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "code": code,
    });
    if let (Some(status), false) = (status.as_object_mut(), details.is_null()) {
        status.insert("details".to_owned(), details);
    }
    status
}
