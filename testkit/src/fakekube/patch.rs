//! The patch formats, told apart by content type.

use serde_json::Value;

use super::error::ApiError;
use super::resource::ResourceType;
use super::{strategic, strategy};

/// A decoded PATCH body.
#[derive(Debug, Clone)]
pub(crate) enum Patch {
    /// RFC 6902.
    Json(json_patch::Patch),
    /// RFC 7386.
    Merge(Value),
    /// Kubernetes' own merge patch.
    Strategic(Value),
    /// Server-side apply in a simple form: create or merge; field ownership isn't tracked, so a
    /// field that an applier stops sending stays.
    Apply(Value),
}

impl Patch {
    pub(crate) fn decode(
        resource: &ResourceType,
        content_type: &str,
        body: &[u8],
    ) -> Result<Self, ApiError> {
        let media_type = content_type.split(';').next().unwrap_or_default().trim();
        match media_type {
            "application/json-patch+json" => decoded(body).map(Self::Json),
            "application/merge-patch+json" => decoded(body).map(Self::Merge),
            "application/strategic-merge-patch+json" if strategy::takes_strategic(resource) => {
                decoded(body).map(Self::Strategic)
            }
            // kube and kubectl send JSON under this name, which is YAML too.
            "application/apply-patch+yaml" => decoded(body).map(Self::Apply),
            other => Err(ApiError::new(
                415,
                "UnsupportedMediaType",
                format!(
                    "the body of the request was in an unknown format - accepted media types \
                     include: application/json-patch+json, application/merge-patch+json, \
                     application/apply-patch+yaml; got {other}"
                ),
            )),
        }
    }

    /// The patched object; the input is in the form that the client sees.
    pub(crate) fn apply(
        &self,
        resource: &ResourceType,
        mut object: Value,
    ) -> Result<Value, ApiError> {
        match self {
            Self::Json(patch) => json_patch::patch(&mut object, patch).map_err(|error| {
                let message = format!(
                    "the server rejected our request due to an error in our request: {error}"
                );
                ApiError::new(422, "Invalid", message)
            })?,
            Self::Merge(patch) => json_patch::merge(&mut object, patch),
            Self::Apply(patch) if !strategy::takes_strategic(resource) => {
                json_patch::merge(&mut object, patch);
            }
            Self::Strategic(patch) | Self::Apply(patch) => strategic::merge(&mut object, patch),
        }
        Ok(object)
    }
}

fn decoded<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body)
        .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))
}
