//! Waiting for facts.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// Asks until the answer is yes, or fails with what was waited for. An error counts as no; the
/// last one is told.
pub fn eventually(
    what: &str,
    patience: Duration,
    mut ask: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let deadline = Instant::now() + patience;
    loop {
        let answer = ask();
        if matches!(answer, Ok(true)) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return match answer {
                Err(error) => Err(error).with_context(|| format!("not seen: {what}")),
                Ok(_) => bail!("not seen in {} s: {what}", patience.as_secs()),
            };
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
