//! `/metrics`, in Prometheus' text form.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mpshare_core::ledger::Ledger;
use mpshare_telemetry::Page;

/// Upper bounds of the duration's buckets, in microseconds.
const BUCKETS: [u64; 10] =
    [100, 250, 500, 1_000, 2_500, 10_000, 50_000, 250_000, 1_000_000, 5_000_000];

/// How calls went.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    calls: Mutex<BTreeMap<&'static str, Calls>>,
}

#[derive(Debug, Clone, Default)]
struct Calls {
    ok: u64,
    failed: u64,
    buckets: [u64; BUCKETS.len()],
    micros: u128,
}

/// How a call went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Ok,
    Failed,
}

impl Metrics {
    /// Counts a call.
    pub(crate) fn count(&self, verb: &'static str, outcome: Outcome, took: Duration) {
        let mut all = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let calls = all.entry(verb).or_default();
        match outcome {
            Outcome::Ok => calls.ok += 1,
            Outcome::Failed => calls.failed += 1,
        }
        calls.micros += took.as_micros();
        for (count, bound) in calls.buckets.iter_mut().zip(BUCKETS) {
            if took.as_micros() <= u128::from(bound) {
                *count += 1;
            }
        }
    }

    /// Everything, as text.
    pub(crate) fn text(&self, ledger: &Ledger) -> String {
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut page = Page::default();
        requests(&mut page, &calls);
        durations(&mut page, &calls);
        cards(&mut page, ledger);
        page.into_text()
    }
}

fn requests(page: &mut Page, calls: &BTreeMap<&'static str, Calls>) {
    page.kind("mpshare_extender_requests_total", "counter", "Calls by their result.");
    for (verb, calls) in calls {
        for (result, count) in [("ok", calls.ok), ("failed", calls.failed)] {
            let labels = [("verb", *verb), ("result", result)];
            page.line("mpshare_extender_requests_total", &labels, &count.to_string());
        }
    }
}

fn durations(page: &mut Page, calls: &BTreeMap<&'static str, Calls>) {
    let name = "mpshare_extender_request_duration_seconds";
    page.kind(name, "histogram", "How long calls took.");
    for (verb, calls) in calls {
        let bounds = BUCKETS.iter().map(|bound| seconds(u128::from(*bound)));
        let total = (calls.ok + calls.failed).to_string();
        let bucket = format!("{name}_bucket");
        for (bound, count) in bounds.zip(calls.buckets) {
            page.line(&bucket, &[("verb", verb), ("le", &bound)], &count.to_string());
        }
        page.line(&bucket, &[("verb", verb), ("le", "+Inf")], &total);
        page.line(&format!("{name}_sum"), &[("verb", verb)], &seconds(calls.micros));
        page.line(&format!("{name}_count"), &[("verb", verb)], &total);
    }
}

fn seconds(micros: u128) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

fn cards(page: &mut Page, ledger: &Ledger) {
    let all = || {
        ledger.nodes().flat_map(|(node, usage)| {
            let cards = usage.cards.as_ref().into_iter().flatten();
            cards.map(move |card| (node, card))
        })
    };
    page.kind("mpshare_gpu_capacity_mib", "gauge", "Memory that the card's units add up to.");
    for (node, card) in all() {
        let labels = [("node", node.0.as_str()), ("gpu", card.card.uuid.as_str())];
        page.line("mpshare_gpu_capacity_mib", &labels, &card.card.capacity().mib().to_string());
    }
    page.kind("mpshare_gpu_allocated_mib", "gauge", "Memory of the card that pods hold.");
    for (node, card) in all() {
        let labels = [("node", node.0.as_str()), ("gpu", card.card.uuid.as_str())];
        page.line("mpshare_gpu_allocated_mib", &labels, &card.placed.mib().to_string());
    }
    page.kind(
        "mpshare_gpu_drift_mib",
        "gauge",
        "Allocated memory less what the card's node says that pods have; not 0 for longer than pods take to start or end means that one of the two is wrong.",
    );
    for (node, card) in all() {
        let Some(held) = card.card.held else { continue };
        let labels = [("node", node.0.as_str()), ("gpu", card.card.uuid.as_str())];
        let held = i128::from(card.card.unit.times(held).mib());
        let drift = i128::from(card.placed.mib()) - held;
        page.line("mpshare_gpu_drift_mib", &labels, &drift.to_string());
    }
    page.kind(
        "mpshare_gpu_outside_shares_mib",
        "gauge",
        "Memory of the card that processes use which have no share of it.",
    );
    for (node, card) in all() {
        let labels = [("node", node.0.as_str()), ("gpu", card.card.uuid.as_str())];
        page.line("mpshare_gpu_outside_shares_mib", &labels, &card.card.outside.mib().to_string());
    }
    page.kind(
        "mpshare_ledger_unplaced_pods",
        "gauge",
        "Bound pods of which no valid allocation says where they are (drift).",
    );
    for (node, usage) in ledger.nodes() {
        let count = usage.unplaced.len().to_string();
        page.line("mpshare_ledger_unplaced_pods", &[("node", &node.0)], &count);
    }
    page.kind("mpshare_ledger_binds_in_flight", "gauge", "Binds that the watch hasn't shown yet.");
    let count = ledger.reservations().to_string();
    page.line("mpshare_ledger_binds_in_flight", &[], &count);
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpshare_api::inventory_annotation::node_facts;
    use mpshare_api::names::NODE_GPUS;
    use mpshare_core::ledger::NodeName;

    #[test]
    fn calls_are_counted_into_every_bucket_that_they_fit() {
        let metrics = Metrics::default();
        metrics.count("filter", Outcome::Ok, Duration::from_micros(300));
        metrics.count("filter", Outcome::Failed, Duration::from_secs(9));
        let text = metrics.text(&Ledger::default());
        for line in [
            "mpshare_extender_requests_total{verb=\"filter\",result=\"ok\"} 1",
            "mpshare_extender_request_duration_seconds_bucket{verb=\"filter\",le=\"0.000250\"} 0",
            "mpshare_extender_request_duration_seconds_bucket{verb=\"filter\",le=\"0.000500\"} 1",
            "mpshare_extender_request_duration_seconds_bucket{verb=\"filter\",le=\"+Inf\"} 2",
            "mpshare_extender_request_duration_seconds_sum{verb=\"filter\"} 9.000300",
            "mpshare_ledger_binds_in_flight 0",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} isn't in\n{text}");
        }
    }

    #[test]
    fn what_a_node_says_is_compared_with_the_ledger() {
        let line = |name: &str, held: &str| {
            let gpus = format!(
                r#"[{{"uuid":"GPU-0a","index":0,"model":"T4","memoryMiB":15360,"unitMiB":1024,"units":15,"state":"Ready"{held}}}]"#
            );
            let annotations = BTreeMap::from([(NODE_GPUS.to_owned(), gpus)]);
            let mut ledger = Ledger::default();
            let node = NodeName("n".to_owned());
            ledger.set_node(&node, node_facts(&annotations, &BTreeMap::new()));
            let text = Metrics::default().text(&ledger);
            let line = format!("{name}{{node=\"n\",gpu=\"GPU-0a\"}} ");
            text.lines().find_map(|it| it.strip_prefix(&line)).map(str::to_owned)
        };
        let drift = |held: &str| line("mpshare_gpu_drift_mib", held);
        assert_eq!(drift(r#","heldUnits":7"#).as_deref(), Some("-7168"));
        assert_eq!(drift(r#","heldUnits":0"#).as_deref(), Some("0"));
        assert_eq!(drift(""), None, "a node that doesn't say");
        let outside = |held: &str| line("mpshare_gpu_outside_shares_mib", held);
        assert_eq!(outside(r#","outsideMiB":1336"#).as_deref(), Some("1336"));
        assert_eq!(outside("").as_deref(), Some("0"));
    }
}
