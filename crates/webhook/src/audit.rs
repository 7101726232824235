//! Events about what the mode `audit` lets pass without a word to who creates the pod.
//!
//! Written beside the reviews, which never wait for them: the queue is short, and what doesn't fit
//! or can't be written is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::Resource as _;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::PostParams;
use kube::core::{Request as ApiRequest, Resource as _};
use mpshare_api::admission_review::Request;
use mpshare_api::names::FIELD_MANAGER;
use mpshare_core::Reason;
use mpshare_telemetry::{Failures, sentence};
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// How many Events may wait.
const QUEUE: usize = 256;

/// Between two Events: whoever reaches the webhook can have some written, and they are kept for an
/// hour.
const PAUSE: Duration = Duration::from_millis(100);

/// The reason of these Events.
const REASON: &str = "AdmissionAudit";

/// Who writes them.
const COMPONENT: &str = "mpshare-webhook";

/// The longest note that an API server takes, in bytes.
const NOTE_LIMIT: usize = 1024;

/// The longest part of a pod's name in an Event's, which may have 253.
const NAME_LIMIT: usize = 200;

/// The end of the queue where findings go in.
#[derive(Debug)]
pub(crate) struct Reporter {
    queue: mpsc::Sender<Report>,
    dropped: Arc<AtomicU64>,
}

/// The end of the queue where Events come out.
#[derive(Debug)]
pub(crate) struct Reports {
    queue: mpsc::Receiver<Report>,
    dropped: Arc<AtomicU64>,
}

/// A finding about a pod.
#[derive(Debug)]
struct Report {
    namespace: String,
    /// What the name begins with, where it isn't made yet.
    pod: String,
    note: String,
}

/// Both ends of a queue.
pub(crate) fn queue() -> (Reporter, Reports) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let dropped = Arc::new(AtomicU64::new(0));
    let reporter = Reporter { queue: sender, dropped: Arc::clone(&dropped) };
    (reporter, Reports { queue: receiver, dropped })
}

impl Reporter {
    /// Has an Event written about each finding, unless there are too many.
    pub(crate) fn report(&self, request: &Request, findings: &[Reason]) {
        for finding in findings {
            let report = Report {
                namespace: request.namespace.clone(),
                pod: pod_name(request),
                note: finding.to_string(),
            };
            if self.queue.try_send(report).is_err() {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// How many Events there should have been and aren't.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// The pod's name, or what it will begin with.
fn pod_name(request: &Request) -> String {
    if !request.name.is_empty() {
        return request.name.clone();
    }
    let text = |pointer: &str| {
        let text = request.object.pointer(pointer).and_then(Value::as_str);
        text.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    text("/metadata/name").or_else(|| text("/metadata/generateName")).unwrap_or_default()
}

/// Writes what is queued, without end. That it fails is said once.
pub(crate) async fn run(client: &Client, mut reports: Reports) {
    let mut failures = Failures::new("can't write an Event");
    let mut written: u64 = 0;
    while let Some(report) = reports.queue.recv().await {
        written += 1;
        match write(client, &report, written).await {
            Ok(()) => failures.over(),
            Err(error) => {
                reports.dropped.fetch_add(1, Ordering::Relaxed);
                failures.failed(&sentence(&error));
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    // Nobody is left who could report.
    std::future::pending::<()>().await;
}

async fn write(client: &Client, report: &Report, number: u64) -> Result<(), kube::Error> {
    let body = event(report, number, Timestamp::now()).to_string().into_bytes();
    let parameters =
        PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let request = ApiRequest::new(Event::url_path(&(), Some(&report.namespace)))
        .create(&parameters, body)
        .map_err(kube::Error::BuildRequest)?;
    client.request::<IgnoredAny>(request).await.map(drop)
}

fn event(report: &Report, number: u64, now: Timestamp) -> Value {
    let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    // As client-go names them; the number keeps two of one moment apart.
    let unique = format!("{:x}.{number:x}", now.as_nanosecond());
    let stem = cut(&report.pod, NAME_LIMIT).trim_matches(['-', '.']);
    let stem = if stem.is_empty() { "pod" } else { stem };
    json!({
        "apiVersion": Event::API_VERSION,
        "kind": Event::KIND,
        "metadata": {"name": format!("{stem}.{unique}"), "namespace": report.namespace},
        "involvedObject": {
            "apiVersion": "v1", "kind": "Pod",
            "namespace": report.namespace, "name": report.pod,
        },
        "type": "Warning",
        "reason": REASON,
        "message": cut(&report.note, NOTE_LIMIT),
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": COMPONENT,
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    })
}

/// The beginning of a text, at most so many bytes.
fn cut(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_doesnt_fit_is_counted_and_never_waited_for() {
        let (reporter, _reports) = queue();
        let findings = vec![Reason::EmptyRequest; QUEUE + 5];
        reporter.report(&Request::default(), &findings);
        assert_eq!(reporter.dropped(), 5);
    }

    #[test]
    fn a_pod_without_a_name_is_called_by_what_its_name_will_begin_with() {
        let request = |object: Value| Request { object, ..Request::default() };
        let generated = request(json!({"metadata": {"name": "", "generateName": "web-7d-"}}));
        assert_eq!(pod_name(&generated), "web-7d-");
        assert_eq!(pod_name(&request(Value::Null)), "");
        let named = Request { name: "a".to_owned(), ..generated };
        assert_eq!(pod_name(&named), "a");
    }

    #[test]
    fn an_event_has_a_valid_name_and_a_note_that_fits() {
        let report = Report {
            namespace: "ns".to_owned(),
            pod: format!("{}-", "a".repeat(240)),
            note: "ä".repeat(600),
        };
        let event = event(&report, 255, Timestamp::UNIX_EPOCH);
        let name = event["metadata"]["name"].as_str().unwrap();
        assert!(name.ends_with("a.0.ff") && name.len() < 253, "{name}");
        assert_eq!(event["message"].as_str().unwrap().len(), NOTE_LIMIT);
        assert_eq!(event["involvedObject"]["name"], report.pod);
    }
}
