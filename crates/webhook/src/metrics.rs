//! `/metrics`.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mpshare_telemetry::Page;

use crate::mode::Mode;

/// Upper bounds of the duration's buckets, in microseconds.
const BUCKETS: [u64; 9] = [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 100_000, 1_000_000];

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verb {
    Mutate,
    Validate,
}

/// How a review went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    Allowed,
    Patched,
    Warned,
    Audited,
    Denied,
    Unreadable,
}

impl Verb {
    const fn name(self) -> &'static str {
        match self {
            Self::Mutate => "mutate",
            Self::Validate => "validate",
        }
    }
}

impl Outcome {
    const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Patched => "patched",
            Self::Warned => "warned",
            Self::Audited => "audited",
            Self::Denied => "denied",
            Self::Unreadable => "unreadable",
        }
    }
}

/// What has been counted.
#[derive(Debug, Default)]
pub(crate) struct Metrics(Mutex<Counts>);

#[derive(Debug, Clone, Default)]
struct Counts {
    reviews: BTreeMap<(Verb, Mode, Outcome), u64>,
    findings: BTreeMap<(&'static str, Mode), u64>,
    durations: BTreeMap<Verb, Durations>,
}

#[derive(Debug, Clone, Default)]
struct Durations {
    count: u64,
    buckets: [u64; BUCKETS.len()],
    micros: u128,
}

impl Metrics {
    /// Counts a review.
    pub(crate) fn count(&self, verb: Verb, mode: Mode, outcome: Outcome) {
        *self.counts().reviews.entry((verb, mode, outcome)).or_default() += 1;
    }

    /// Counts a finding.
    pub(crate) fn found(&self, code: &'static str, mode: Mode) {
        *self.counts().findings.entry((code, mode)).or_default() += 1;
    }

    /// Counts how long an answer took, from its body on.
    pub(crate) fn took(&self, verb: Verb, took: Duration) {
        let mut counts = self.counts();
        let durations = counts.durations.entry(verb).or_default();
        durations.count += 1;
        durations.micros += took.as_micros();
        for (count, bound) in durations.buckets.iter_mut().zip(BUCKETS) {
            if took.as_micros() <= u128::from(bound) {
                *count += 1;
            }
        }
    }

    /// Everything, as text.
    pub(crate) fn text(&self, events_dropped: u64, expiry: Option<u64>) -> String {
        let counts = self.counts().clone();
        let mut page = Page::default();
        reviews(&mut page, &counts);
        durations(&mut page, &counts);
        let name = "mpshare_webhook_events_dropped_total";
        page.kind(name, "counter", "Events about audited findings that couldn't be written.");
        page.line(name, &[], &events_dropped.to_string());
        if let Some(expiry) = expiry {
            let name = "mpshare_webhook_certificate_expiry_timestamp_seconds";
            page.kind(name, "gauge", "Until when the certificate in use is valid.");
            page.line(name, &[], &expiry.to_string());
        }
        page.into_text()
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn reviews(page: &mut Page, counts: &Counts) {
    let name = "mpshare_webhook_reviews_total";
    page.kind(name, "counter", "Reviews by what came of them.");
    for ((verb, mode, outcome), count) in &counts.reviews {
        let labels = [("verb", verb.name()), ("mode", mode.name()), ("outcome", outcome.name())];
        page.line(name, &labels, &count.to_string());
    }
    let name = "mpshare_webhook_findings_total";
    page.kind(name, "counter", "What was found wrong with pods, or had to be changed in them.");
    for ((code, mode), count) in &counts.findings {
        page.line(name, &[("code", code), ("mode", mode.name())], &count.to_string());
    }
}

fn durations(page: &mut Page, counts: &Counts) {
    let name = "mpshare_webhook_review_duration_seconds";
    page.kind(name, "histogram", "How long answers took, from the end of the question on.");
    let bucket = format!("{name}_bucket");
    for (verb, durations) in &counts.durations {
        let verb = verb.name();
        for (bound, count) in BUCKETS.into_iter().zip(durations.buckets) {
            let labels = [("verb", verb), ("le", &seconds(u128::from(bound)))];
            page.line(&bucket, &labels, &count.to_string());
        }
        let total = durations.count.to_string();
        page.line(&bucket, &[("verb", verb), ("le", "+Inf")], &total);
        page.line(&format!("{name}_sum"), &[("verb", verb)], &seconds(durations.micros));
        page.line(&format!("{name}_count"), &[("verb", verb)], &total);
    }
}

fn seconds(micros: u128) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reviews_findings_and_durations_are_counted_apart() {
        let metrics = Metrics::default();
        metrics.count(Verb::Validate, Mode::Enforce, Outcome::Denied);
        metrics.count(Verb::Validate, Mode::Enforce, Outcome::Denied);
        metrics.count(Verb::Mutate, Mode::Audit, Outcome::Patched);
        metrics.found("TwoResources", Mode::Enforce);
        metrics.took(Verb::Validate, Duration::from_micros(300));
        let text = metrics.text(3, Some(1_900_000_000));
        for line in [
            "mpshare_webhook_reviews_total{verb=\"validate\",mode=\"enforce\",outcome=\"denied\"} 2",
            "mpshare_webhook_reviews_total{verb=\"mutate\",mode=\"audit\",outcome=\"patched\"} 1",
            "mpshare_webhook_findings_total{code=\"TwoResources\",mode=\"enforce\"} 1",
            "mpshare_webhook_review_duration_seconds_bucket{verb=\"validate\",le=\"0.000250\"} 0",
            "mpshare_webhook_review_duration_seconds_bucket{verb=\"validate\",le=\"0.000500\"} 1",
            "mpshare_webhook_review_duration_seconds_count{verb=\"validate\"} 1",
            "mpshare_webhook_events_dropped_total 3",
            "mpshare_webhook_certificate_expiry_timestamp_seconds 1900000000",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} isn't in\n{text}");
        }
    }
}
