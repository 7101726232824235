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

/// The answer about a pod that is gone.
const GONE: u16 = 404;

/// Writes the newest corrections, one after the other. What they come to is decided anew when the
/// watch shows it. Ends with the sender.
pub(crate) async fn corrections(client: Client, mut wanted: watch::Receiver<Vec<Correction>>) {
    let mut retry = Retry::new("annotations of a pod");
    while wanted.changed().await.is_ok() {
        let corrections = wanted.borrow_and_update().clone();
        let mut problem = None;
        for correction in &corrections {
            match write(&client, correction).await {
                Ok(()) => {
                    let (namespace, name) = (&correction.namespace, &correction.name);
                    tracing::debug!(namespace, name, change = ?correction.change, "pod corrected");
                }
                Err(kube::Error::Api(status)) if status.code == GONE => {}
                // One that can't be written keeps no other one waiting. One whose name another pod
                // has by now is no more wanted once the watch has shown it.
                Err(error) => problem = Some(error),
            }
        }
        match problem {
            None => retry.succeeded(),
            Some(error) => {
                retry.failed(&error).await;
                // What was wanted then may not be what is wanted now.
                wanted.mark_changed();
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
