//! Structured logs on stderr: one line per fact.

use std::io;

use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Installs the process's subscriber. `filter` is a level, or targets with levels, such as `info`
/// or `info,mpshare_mps=debug`; one that can't be read counts as `info`, with a warning.
///
/// Only binaries call this, once.
pub fn init_logs(filter: &str, format: LogFormat) {
    match filter.parse() {
        Ok(parsed) => install(parsed, format),
        Err(error) => {
            install(Targets::new().with_default(Level::INFO), format);
            tracing::warn!(filter, %error, "log filter can't be read, using `info`");
        }
    }
}

fn install(filter: Targets, format: LogFormat) {
    let registry = tracing_subscriber::registry();
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let installed = match format {
        LogFormat::Text => registry.with(lines.with_ansi(false).with_filter(filter)).try_init(),
        LogFormat::Json => registry.with(lines.json().with_filter(filter)).try_init(),
    };
    // A second subscriber in one process can only come from a test; the first one stays.
    if let Err(error) = installed {
        tracing::debug!(%error, "logs are already set up");
    }
}
