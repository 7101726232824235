//! The CA bundle in the webhook configurations, where API servers read it.
//!
//! Configurations are read and patched as they are, not as this program's version of their type
//! would have them, so that no field is lost.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use thiserror::Error;

/// Why the bundle isn't everywhere.
#[derive(Debug, Error)]
pub(crate) enum PublishError {
    /// A configuration can't be read.
    #[error("can't read the {kind} `{name}`")]
    Read {
        kind: String,
        name: String,
        #[source]
        error: Box<kube::Error>,
    },
    /// A configuration can't be changed.
    #[error("can't put the CA bundle into the {kind} `{name}`")]
    Patch {
        kind: String,
        name: String,
        #[source]
        error: Box<kube::Error>,
    },
}

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Published {
    /// The bundle was everywhere.
    Already,
    /// It is now.
    Now,
}

/// Makes sure that all entries of both configurations of this name have this bundle. One that isn't
/// there has nothing to be told.
pub(crate) async fn publish(
    client: &Client,
    name: &str,
    bundle: &str,
) -> Result<Published, PublishError> {
    let kinds = [
        ApiResource::erase::<MutatingWebhookConfiguration>(&()),
        ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
    ];
    let mut published = Published::Already;
    let mut failed = None;
    // One that can't be changed keeps no other from being up to date.
    for kind in kinds {
        match publish_in(client, &kind, name, bundle).await {
            Ok(Published::Already) => {}
            Ok(Published::Now) => published = Published::Now,
            Err(error) => failed = Some(error),
        }
    }
    failed.map_or(Ok(published), Err)
}

async fn publish_in(
    client: &Client,
    kind: &ApiResource,
    name: &str,
    bundle: &str,
) -> Result<Published, PublishError> {
    let api = Api::<DynamicObject>::all_with(client.clone(), kind);
    let about = || (kind.kind.clone(), name.to_owned());
    let found = api.get_opt(name).await.map_err(|error| {
        let (kind, name) = about();
        PublishError::Read { kind, name, error: Box::new(error) }
    })?;
    let Some(found) = found else { return Ok(Published::Already) };
    let operations = operations(&found.data, &STANDARD.encode(bundle));
    if operations.is_empty() {
        return Ok(Published::Already);
    }
    let patch = async {
        let patch = serde_json::from_value(Value::Array(operations));
        let patch = Patch::<()>::Json(patch.map_err(kube::Error::SerdeError)?);
        api.patch_metadata(name, &PatchParams::default(), &patch).await
    };
    patch.await.map_err(|error| {
        let (kind, name) = about();
        PublishError::Patch { kind, name, error: Box::new(error) }
    })?;
    tracing::info!(configuration = name, kind = kind.kind, "CA bundle published");
    Ok(Published::Now)
}

/// The patch of the entries whose bundle differs; the tests keep it from hitting another entry when
/// somebody changes the list at the same time.
fn operations(configuration: &Value, bundle: &str) -> Vec<Value> {
    let entries = configuration.get("webhooks").and_then(Value::as_array);
    let mut operations = Vec::new();
    for (position, entry) in entries.into_iter().flatten().enumerate() {
        let current = entry.pointer("/clientConfig/caBundle").and_then(Value::as_str);
        if current == Some(bundle) || entry.get("clientConfig").is_none() {
            continue;
        }
        let path = format!("/webhooks/{position}");
        let name = entry.get("name").cloned().unwrap_or_default();
        operations.push(json!({"op": "test", "path": format!("{path}/name"), "value": name}));
        let path = format!("{path}/clientConfig/caBundle");
        operations.push(json!({"op": "add", "path": path, "value": bundle}));
    }
    operations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_entries_whose_bundle_differs_are_patched() {
        let entry = |name: &str, bundle: Value| json!({"name": name, "clientConfig": bundle});
        let found = json!({"webhooks": [
            entry("a", json!({"caBundle": "eA=="})),
            entry("b", json!({})),
            entry("c", json!({"caBundle": "eQ=="})),
        ]});
        assert_eq!(
            Value::Array(operations(&found, "eA==")),
            json!([
                {"op": "test", "path": "/webhooks/1/name", "value": "b"},
                {"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": "eA=="},
                {"op": "test", "path": "/webhooks/2/name", "value": "c"},
                {"op": "add", "path": "/webhooks/2/clientConfig/caBundle", "value": "eA=="},
            ])
        );
        assert!(operations(&json!({}), "eA==").is_empty());
    }
}
