//! The uninstall's own Job: Helm leaves it, so that its log can be read, and Kubernetes deletes it
//! after its `ttlSecondsAfterFinished`. When all nodes are clean there is nothing to read.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use kube::api::{Patch, PatchParams, Request};
use kube::{Client, Resource as _};
use mpshare_api::names::FIELD_MANAGER;
use serde::de::IgnoredAny;
use serde_json::json;

use crate::Options;
use crate::patience::{AskError, Patience};

/// For how long a Job stays that nobody needs: whoever waits for its end, as Helm does, sees it.
const STAYS: Duration = Duration::from_secs(10);

/// For how long it is tried.
const PATIENCE: Duration = Duration::from_secs(10);

/// Lets the Job go as soon as it has ended.
pub(crate) async fn let_go(client: &Client, options: &Options, name: &str) -> Result<(), AskError> {
    let parameters =
        PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let patch = Patch::Merge(json!({"spec": {"ttlSecondsAfterFinished": STAYS.as_secs()}}));
    let request = || async {
        let request = Request::new(Job::url_path(&(), Some(&options.pod.namespace)))
            .patch(name, &parameters, &patch)
            .map_err(kube::Error::BuildRequest)?;
        client.request::<IgnoredAny>(request).await.map(drop)
    };
    Patience::lasting(PATIENCE, options.look_every).ask(request).await
}
