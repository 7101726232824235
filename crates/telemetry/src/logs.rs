//! Structured logs on stderr: one line per fact.

use std::io;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Installs the process's subscriber. `filter` is in `tracing`'s form, such as `info` or
/// `info,mpshare_mps=debug`; one that can't be read counts as `info`, with a warning.
///
/// Only binaries call this, once.
pub fn init_logs(filter: &str, format: LogFormat) {
    let parsed = EnvFilter::try_new(filter);
    let problem = parsed.as_ref().err().map(ToString::to_string);
    let builder = tracing_subscriber::fmt()
        .with_env_filter(parsed.unwrap_or_else(|_| EnvFilter::new("info")))
        .with_span_events(FmtSpan::NONE)
        .with_writer(io::stderr);
    // A second subscriber in one process can only come from a test; the first one stays.
    let installed = match format {
        LogFormat::Text => builder.with_ansi(false).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    if let Err(error) = installed {
        tracing::debug!(%error, "logs are already set up");
    }
    if let Some(problem) = problem {
        tracing::warn!(filter, problem, "log filter can't be read, using `info`");
    }
}
