//! Golden tests of the config format: every file below `config/` is read, and what a person sees
//! is compared with a snapshot.
#![expect(clippy::unwrap_used, reason = "a helper of a test fails by panicking, as the tests do")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mpshare_api::config::{self, parse};
use proptest::prelude::*;

fn texts(kind: &str) -> BTreeMap<String, String> {
    let directory = root().join("tests/config").join(kind);
    let files = std::fs::read_dir(directory).unwrap();
    files
        .map(|file| {
            let file = file.unwrap();
            let name = file.file_name().into_string().unwrap();
            (name, std::fs::read_to_string(file.path()).unwrap())
        })
        .collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

#[test]
fn accepted_configs_mean_what_the_snapshot_says() {
    let texts = texts("accepted");
    assert!(texts.len() >= 10);
    let meanings: BTreeMap<_, _> =
        texts.iter().map(|(name, text)| (name, parse(name, text))).collect();
    assert!(meanings.values().all(Result::is_ok));
    insta::assert_debug_snapshot!("accepted", meanings);
}

#[test]
fn refused_configs_show_line_column_caret_and_hint() {
    let texts = texts("refused");
    assert!(texts.len() >= 12);
    let mut reports = Vec::new();
    for (name, text) in texts {
        let error = parse(&name, &text).unwrap_err();
        let place = format!("{name}:{}:{}: ", error.line, error.column);
        assert!(error.report.starts_with(&place), "{error}");
        assert!(error.report.contains("^\nhint: "), "{error}");
        reports.push(error.report);
    }
    insta::assert_snapshot!("refused", reports.join("\n"));
}

#[test]
fn a_text_larger_than_a_config_map_is_refused() {
    let text = format!("#{}", "x".repeat(config::MAX_BYTES));
    let error = parse("large", &text).unwrap_err();
    assert_eq!(error.line, 0);
    assert!(error.message.contains("1048577 bytes"), "{error}");
}

#[test]
fn the_published_schema_is_up_to_date() {
    let path = root().join("../../docs/config.schema.json");
    let schema = format!("{:#}\n", config::json_schema());
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(&path, &schema).unwrap();
    }
    let published = std::fs::read_to_string(&path).unwrap();
    assert!(
        published == schema,
        "docs/config.schema.json is out of date; hint: `UPDATE_SCHEMA=1 cargo test -p mpshare-api`"
    );
}

/// Pieces of configs in any order: more likely to get far into the reader than random characters.
fn rubble() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("version: v1\n"),
        Just("sharing:\n"),
        Just("  mps:\n"),
        Just("    resources:\n"),
        Just("    - name: gpu\n"),
        Just("      replicas: "),
        Just("      devices: "),
        Just("2\n"),
        Just("[0, 1]\n"),
        Just("all\n"),
        Just("-1\n"),
        Just("&a "),
        Just("*a\n"),
        Just("<<: *a\n"),
        Just("{"),
        Just("}"),
        Just("["),
        Just("]"),
        Just("\t"),
        Just(": "),
        Just("- "),
        Just("\""),
        Just("'"),
        Just("|\n"),
        Just("flags:\n"),
        Just("  plugin:\n"),
        Just("!!binary "),
        Just("---\n"),
        Just("\u{feff}"),
        Just("é"),
        Just("\r\n"),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

#[test]
fn nested_brackets_and_repeated_aliases_are_refused_cheaply() {
    let started = std::time::Instant::now();
    for opening in ["[", "{", "- ", "? ", "{a: "] {
        let text = format!("version: \n  {}", opening.repeat(100_000));
        assert!(parse("deep", &text).is_err());
    }
    let aliases = ", *a".repeat(200_000);
    let text = format!("sharing: {{mps: {{resources: [&a {{name: gpu, replicas: 2}}{aliases}]}}}}");
    let error = parse("wide", &text).unwrap_err();
    assert!(error.message.contains("aliases than any config needs"), "{error}");
    assert!(started.elapsed().as_secs() < 10);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_accepted_or_refused_at_a_place_within_it(text in prop_oneof![".*", rubble()]) {
        if let Err(error) = parse("any", &text) {
            let lines = text.split(['\n', '\r']).count();
            prop_assert!(error.line <= lines + 1, "{error}");
            prop_assert!(!error.message.contains('\n'), "{error}");
        }
    }
}
