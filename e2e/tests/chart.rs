//! The Helm chart, rendered by Helm: what it makes of values, and what it refuses.

#![expect(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says where it can't run"
)]

#[path = "chart/documents.rs"]
mod documents;
#[path = "chart/objects.rs"]
mod objects;
#[path = "chart/scheduler.rs"]
mod scheduler;
#[path = "chart/values.rs"]
mod values;
#[path = "chart/webhook.rs"]
mod webhook;

use std::path::Path;

use mpshare_e2e::chart::{Chart, ChartError, Rendering};

/// The repository.
fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// A file of the repository.
fn file(path: &str) -> String {
    std::fs::read_to_string(repository().join(path))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The chart; `None`, and a word about it, where there is no Helm.
fn chart() -> Option<Chart> {
    let chart = Chart::of(repository());
    if chart.is_none() {
        println!("skipped: no helm (build it with e2e/cluster/build-helm)");
    }
    chart
}

/// An install with these values, each as `helm --set` takes it.
fn with(chart: &Chart, values: &[&str]) -> Result<Rendering, ChartError> {
    let arguments: Vec<&str> = values.iter().flat_map(|value| ["--set", value]).collect();
    chart.render(&arguments)
}

/// What Helm says to values that can't be.
#[track_caller]
fn refusal(chart: &Chart, values: &[&str]) -> String {
    match with(chart, values) {
        Err(ChartError::Refused(sentence)) => sentence,
        other => panic!("{values:?} gave {other:?}"),
    }
}
