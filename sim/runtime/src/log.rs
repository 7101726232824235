//! Where the caller looks for the reason of a failure: runc's log, one JSON object per line, and the
//! standard error.

use std::error::Error;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use serde_json::json;

/// Reports `error` with all its causes.
pub(crate) fn report(error: &dyn Error, log: Option<&Path>) {
    let message = chain(error);
    drop(writeln!(io::stderr(), "{message}"));
    if let Some(log) = log {
        let line = json!({
            "level": "error",
            "msg": message,
            "time": jiff::Timestamp::now().to_string(),
        });
        let append = || writeln!(File::options().create(true).append(true).open(log)?, "{line}");
        drop(append());
    }
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
