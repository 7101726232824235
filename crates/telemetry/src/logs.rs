//! Structured logs on stderr: one line per fact.

use std::io;

use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, ParseError, Targets};
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
    match parsed(filter) {
        Ok(parsed) => install(parsed, format),
        Err(problem) => {
            install(Targets::new().with_default(Level::INFO), format);
            tracing::warn!(filter, problem, "log filter can't be read, using `info`");
        }
    }
}

/// A word alone that is no level would be taken for a target, and everything else be silent.
fn parsed(filter: &str) -> Result<Targets, String> {
    let is_level = |part: &str| !part.is_empty() && part.parse::<LevelFilter>().is_ok();
    if !filter.split(',').any(|part| is_level(part) || part.contains('=')) {
        return Err(format!("`{filter}` has no level: error, warn, info, debug, trace or off"));
    }
    filter.parse().map_err(|error: ParseError| error.to_string())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_level_is_no_filter() {
        for filter in ["info", "warn,mpshare_mps=debug", "mpshare_mps=debug", "off"] {
            assert!(parsed(filter).is_ok(), "{filter}");
        }
        for filter in ["loud", "infoo", "", "info,mpshare_mps=quiet"] {
            assert!(parsed(filter).is_err(), "{filter}");
        }
    }
}
