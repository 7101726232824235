//! Structured logs on stderr: one line per fact.

use std::io;

use tracing_subscriber::EnvFilter;

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
    match EnvFilter::try_new(filter) {
        Ok(parsed) => install(parsed, format),
        Err(error) => {
            install(EnvFilter::new("info"), format);
            tracing::warn!(filter, %error, "log filter can't be read, using `info`");
        }
    }
}

fn install(filter: EnvFilter, format: LogFormat) {
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let installed = match format {
        LogFormat::Text => builder.with_ansi(false).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    // A second subscriber in one process can only come from a test; the first one stays.
    if let Err(error) = installed {
        tracing::debug!(%error, "logs are already set up");
    }
}
