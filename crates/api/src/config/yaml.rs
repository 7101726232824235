//! Text -> form. What YAML and the types have to say against a text becomes a [`Mistake`] in the
//! terms of the format; the library's own words never reach a person where better ones exist.

use serde_saphyr::{DuplicateKeyPolicy, Error, MessageFormatter, UserMessageFormatter};

use super::MAX_BYTES;
use super::form::Document;
use super::keys;
use super::mistake::{Mistake, Position, lines};

/// Reads a text; an empty one is an empty document.
pub(super) fn read(text: &str) -> Result<Document, Mistake> {
    if text.len() > MAX_BYTES {
        return Err(Mistake::new(
            Position::UNKNOWN,
            format!("{} bytes are more than a ConfigMap holds", text.len()),
            format!("a config has at most {MAX_BYTES} bytes"),
        ));
    }
    // The limits are far above any config, and keep a hostile one (nested aliases) cheap.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: 32, max_nodes: 20_000, max_aliases: 1_000 },
        duplicate_keys: DuplicateKeyPolicy::Error,
        with_snippet: false,
    };
    let document = serde_saphyr::from_str_with_options::<Option<Document>>(text, options);
    document.map(Option::unwrap_or_default).map_err(|error| mistake(&error, text))
}

fn mistake(error: &Error, text: &str) -> Mistake {
    let at = error.location().map_or(Position::UNKNOWN, Position::from);
    match error {
        Error::SerdeUnknownField { field, expected, .. } => keys::unknown(at, field, expected),
        Error::SerdeMissingField { field, .. } => {
            let hint = format!("add `{field}:`");
            Mistake::new(at, format!("`{field}` is missing"), hint)
        }
        Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().unwrap_or("?");
            let what = format!("`{key}` is given twice");
            Mistake::new(at, what, "remove one of them; the last would win silently")
        }
        Error::SerdeInvalidType { expected, unexpected, .. } => {
            wrong_type(at, expected, Some(unexpected))
        }
        Error::Unexpected { expected, .. } => wrong_type(at, expected, None),
        Error::InvalidScalar { ty, .. } => wrong_type(at, ty, None),
        Error::InvalidBooleanStrict { .. } => wrong_type(at, "bool", None),
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => Mistake::new(
            at,
            "more nodes, levels or aliases than any config needs",
            "write it out without aliases",
        ),
        Error::MultipleDocuments { .. } => Mistake::new(
            at,
            "a second YAML document begins here",
            "put each config under a key of its own",
        ),
        Error::UnknownAnchor { .. } => Mistake::new(
            at,
            "the alias names an anchor that isn't defined above",
            "quote the value if `*` is part of it",
        ),
        // What is wrong is inside of an anchor; the place that uses it is the one to show.
        Error::AliasError { error, .. } => Mistake { at, ..mistake(error, text) },
        other => syntax(at, other, text),
    }
}

fn wrong_type(at: Position, expected: &str, found: Option<&str>) -> Mistake {
    let (expected, hint) = match expected {
        "bool" | "boolean" => ("`true` or `false`", "write one of the two"),
        "string scalar" | "String" | "str" => ("a text", "put the value itself here"),
        "mapping start" | "map" => {
            ("a mapping", "write `key: value` lines, each indented below the key they belong to")
        }
        "sequence start" | "sequence" => ("a list", "begin each of its entries with `- `"),
        other => (other, "check the indentation and the value of this key"),
    };
    let what = match found {
        Some(found) => format!("expected {expected}, found {found}"),
        None => format!("expected {expected} here"),
    };
    Mistake::new(at, what, hint)
}

/// Not YAML at all.
fn syntax(at: Position, error: &Error, text: &str) -> Mistake {
    let message = UserMessageFormatter.format_message(error);
    let line = at.line.checked_sub(1).and_then(|n| lines(text).nth(n));
    // YAML forbids tabs as indentation, and parsers seldom say so.
    let hint = if line.is_some_and(|line| line.trim_start_matches(' ').starts_with('\t')) {
        "indent with spaces; YAML takes no tabs"
    } else {
        "check the indentation, brackets and quotes around this line"
    };
    Mistake::new(at, format!("this is no YAML: {message}"), hint)
}
