//! Annotations of the node's pods.
//!
//! They go through the status subresource, which takes annotations too: so the right to change
//! pods, and with it their images, isn't needed.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, Request};
use kube::core::PartialObjectMeta;
use kube::{Client, Resource as _};
use mpshare_api::names::FIELD_MANAGER;
use serde_json::json;
use tokio::sync::watch;

use super::Retry;
use crate::handoff::Correction;

/// The answers that mean that there is no such pod any more: none of the name, or one of another
/// UID.
const GONE: [u16; 2] = [404, 409];

/// Writes the newest corrections, one after the other. What they come to is decided anew when the
/// watch shows it. Ends with the sender.
pub(crate) async fn corrections(client: Client, mut wanted: watch::Receiver<Vec<Correction>>) {
    let mut retry = Retry::new("annotations of a pod");
    while wanted.changed().await.is_ok() {
        let corrections = wanted.borrow_and_update().clone();
        for correction in &corrections {
            match write(&client, correction).await {
                Ok(()) => {
                    let (namespace, name) = (&correction.namespace, &correction.name);
                    tracing::debug!(namespace, name, change = ?correction.change, "pod corrected");
                    retry.succeeded();
                }
                Err(kube::Error::Api(status)) if GONE.contains(&status.code) => {}
                Err(error) => {
                    retry.failed(&error).await;
                    // What was wanted then may not be what is wanted now.
                    wanted.mark_changed();
                    break;
                }
            }
        }
    }
}

async fn write(client: &Client, correction: &Correction) -> Result<(), kube::Error> {
    let patch = json!({"metadata": {
        "uid": correction.uid,
        "annotations": correction.change.annotations(),
    }});
    let parameters =
        PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let request = Request::new(Pod::url_path(&(), Some(&correction.namespace)))
        .patch_subresource("status", &correction.name, &parameters, &Patch::Merge(patch))
        .map_err(kube::Error::BuildRequest)?;
    client.request::<PartialObjectMeta<Pod>>(request).await.map(drop)
}
