//! Annotations of the node's pods.
//!
//! They go through the status subresource, which takes annotations too: so the right to change
//! pods, and with it their images, isn't needed.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, Request};
use kube::core::PartialObjectMeta;
use kube::{Client, Resource as _};
use mpshare_api::names::FIELD_MANAGER;
use mpshare_telemetry::{Failures, sentence};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::backoff::Doubling;
use crate::handoff::Correction;

/// The answer about a pod that is gone.
const GONE: u16 = 404;

/// Pauses between two corrections of one pod, with jitter: somebody may write against us, or the
/// pod may be one that can't be written.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// A pod that needed no correction for so long begins again with the first pause.
const CALM: Duration = Duration::from_mins(2);

/// Makes the newest corrections, of each pod in its own time. What they come to is decided anew
/// when the watch shows it. Ends with the sender.
pub(crate) async fn corrections(client: Client, mut wanted: watch::Receiver<Vec<Correction>>) {
    let mut failures = Failures::new("annotations of a pod can't be written, retrying");
    let mut pauses = Pauses::default();
    loop {
        let all = wanted.borrow_and_update().clone();
        for correction in &all {
            if !pauses.is_due(&correction.uid, Instant::now()) {
                continue;
            }
            match write(&client, correction).await {
                Ok(()) => failures.over(),
                Err(kube::Error::Api(status)) if status.code == GONE => {}
                Err(error) => failures.failed(&problem(correction, &error)),
            }
            pauses.begin(&correction.uid, Instant::now());
        }
        // Each goes on until the watch shows that it has been made.
        let next = all.iter().filter_map(|correction| pauses.end(&correction.uid)).min();
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() { return },
            () = sleep_until(next) => {}
        }
        pauses.forget(Instant::now());
    }
}

async fn sleep_until(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}

fn problem(correction: &Correction, error: &kube::Error) -> String {
    format!("`{}/{}`: {}", correction.namespace, correction.name, sentence(error))
}

/// The pauses between corrections, by the pod's UID.
#[derive(Debug, Default)]
struct Pauses(BTreeMap<String, Pause>);

#[derive(Debug)]
struct Pause {
    waits: Doubling,
    end: Instant,
}

impl Pauses {
    fn is_due(&self, uid: &str, now: Instant) -> bool {
        self.end(uid).is_none_or(|end| end <= now)
    }

    fn end(&self, uid: &str) -> Option<Instant> {
        self.0.get(uid).map(|pause| pause.end)
    }

    fn begin(&mut self, uid: &str, now: Instant) {
        let new = || Pause { waits: Doubling::new(FIRST_PAUSE, LONGEST_PAUSE), end: now };
        let pause = self.0.entry(uid.to_owned()).or_insert_with(new);
        pause.end = now + pause.waits.wait();
    }

    fn forget(&mut self, now: Instant) {
        self.0.retain(|_, pause| now.saturating_duration_since(pause.end) < CALM);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_is_corrected_again_and_again_waits_longer_and_no_other_one_does() {
        let mut pauses = Pauses::default();
        let mut now = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..14 {
            assert!(pauses.is_due("a", now));
            pauses.begin("a", now);
            assert!(!pauses.is_due("a", now) && pauses.is_due("b", now));
            let end = pauses.end("a").unwrap();
            waits.push(end - now);
            now = end;
        }
        assert!(waits[0] <= FIRST_PAUSE && waits[13] >= LONGEST_PAUSE / 2, "{waits:?}");
        pauses.forget(now + CALM);
        assert_eq!(pauses.end("a"), None, "forgotten after a calm time");
    }
}
