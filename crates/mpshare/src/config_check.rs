//! `mpshare config`: says what configs mean, or where they are wrong, before a node reads them,
//! and prints the JSON Schema of their format. It knows nothing about the cards of any node.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mpshare_api::config::{self, AcceptedConfig, ConfigError, ConfigText};
use serde_json::json;

/// Arguments of `mpshare config`.
#[derive(Debug, clap::Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ConfigCommand {
    /// Say what configs mean, or where they are wrong
    ///
    /// Exit codes: 0 all were accepted, 1 one was refused, 2 one couldn't be read.
    Check(CheckArgs),
    /// Print the JSON Schema of the format, for editors
    Schema,
}

#[derive(Debug, clap::Args)]
struct CheckArgs {
    /// Configs in NVIDIA's format, or `ConfigMap` manifests with configs; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Form of the answer
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// For people
    Text,
    /// For programs
    Json,
}

/// Runs the command; exit codes as in its help.
pub(crate) fn run(args: ConfigArgs) -> ExitCode {
    let mut out = io::stdout().lock();
    let done = match args.command {
        ConfigCommand::Check(args) => check(&args, &mut io::stdin().lock(), &mut out),
        ConfigCommand::Schema => writeln!(out, "{:#}", config::json_schema())
            .map(|()| Outcome::Accepted)
            .map_err(anyhow::Error::from),
    };
    match done {
        Ok(Outcome::Accepted) => ExitCode::SUCCESS,
        Ok(Outcome::Refused) => ExitCode::from(1),
        Ok(Outcome::Unread) => ExitCode::from(2),
        // The reader of a pipe has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to be done when even this can't be written.
            drop(writeln!(io::stderr(), "{error:#}"));
            ExitCode::from(2)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

/// What became of all configs together; the worst counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Accepted,
    Refused,
    /// A file couldn't be read.
    Unread,
}

/// One config and what was found.
struct Checked {
    name: String,
    result: Result<AcceptedConfig, ConfigError>,
    /// Nothing was in it: the output of a command that failed, perhaps.
    is_empty: bool,
}

/// Checks what can be read, and says what can't.
fn check(args: &CheckArgs, stdin: &mut impl Read, out: &mut impl Write) -> anyhow::Result<Outcome> {
    let (mut checked, mut unread) = (Vec::new(), 0_usize);
    for path in &args.files {
        match read(path, stdin) {
            Ok(text) => checked.extend(check_text(&path.display().to_string(), &text)),
            Err(error) => {
                unread += 1;
                writeln!(io::stderr(), "can't read `{}`: {error}", path.display())?;
            }
        }
    }
    match args.output {
        Output::Text => write_text(out, &checked)?,
        Output::Json => write_json(out, &checked)?,
    }
    let all_accepted = checked.iter().all(|one| one.result.is_ok());
    Ok(match unread {
        0 if all_accepted => Outcome::Accepted,
        0 => Outcome::Refused,
        _ => Outcome::Unread,
    })
}

fn read(path: &Path, stdin: &mut impl Read) -> io::Result<String> {
    if path != Path::new("-") {
        return fs::read_to_string(path);
    }
    let mut text = String::new();
    stdin.read_to_string(&mut text)?;
    Ok(text)
}

/// A manifest has one config per key, whose positions count within its value.
fn check_text(name: &str, text: &str) -> Vec<Checked> {
    let Some(texts) = config::config_map_texts(text) else {
        return vec![check_one(name.to_owned(), text)];
    };
    if texts.is_empty() {
        return vec![nothing_in(name)];
    }
    let has_one_map =
        texts.iter().all(|one| texts.first().is_some_and(|first| first.map == one.map));
    let label = |one: &ConfigText| {
        if has_one_map {
            format!("{name}[{}]", one.key)
        } else {
            format!("{name}[{}/{}]", one.map, one.key)
        }
    };
    texts.iter().map(|one| check_one(label(one), &one.text)).collect()
}

/// A `ConfigMap` without configs picks nothing on any node, which can't be what was meant.
fn nothing_in(name: &str) -> Checked {
    let message = "the ConfigMap has no `data`, so there is no config in it; hint: each key of \
                   `data` is one config"
        .to_owned();
    let report = format!("{name}: {message}\n");
    let error = ConfigError { line: 0, column: 0, message, report };
    Checked { name: name.to_owned(), result: Err(error), is_empty: true }
}

fn check_one(name: String, text: &str) -> Checked {
    let result = config::parse(&name, text);
    Checked { name, result, is_empty: text.trim().is_empty() }
}

fn write_text(out: &mut impl Write, checked: &[Checked]) -> io::Result<()> {
    for Checked { name, result, is_empty } in checked {
        match result {
            Ok(config) => {
                writeln!(out, "{name}: ok{}", if *is_empty { ", but empty" } else { "" })?;
                for sentence in config.meaning() {
                    writeln!(out, "  {sentence}")?;
                }
                for warning in &config.warnings {
                    writeln!(out, "  warning: {warning}")?;
                }
            }
            Err(error) => write!(out, "{}", error.report)?,
        }
    }
    Ok(())
}

fn write_json(out: &mut impl Write, checked: &[Checked]) -> io::Result<()> {
    let configs: Vec<_> = checked
        .iter()
        .map(|Checked { name, result, is_empty }| match result {
            Ok(config) => json!({
                "name": name,
                "accepted": true,
                "empty": is_empty,
                "meaning": config.meaning(),
                "warnings": config.warnings,
            }),
            Err(error) => json!({
                "name": name,
                "accepted": false,
                "line": error.line,
                "column": error.column,
                "message": error.message,
            }),
        })
        .collect();
    writeln!(out, "{:#}", json!({ "configs": configs }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}";
    const BAD: &str = "version: v1\nmps: {}\n";

    fn answer(text: &str, output: Output) -> (bool, String) {
        let args = CheckArgs { files: vec!["-".into()], output };
        let mut out = Vec::new();
        let accepted = check(&args, &mut text.as_bytes(), &mut out).unwrap();
        (accepted == Outcome::Accepted, String::from_utf8(out).unwrap())
    }

    #[test]
    fn an_accepted_config_is_explained() {
        let (accepted, text) = answer(GOOD, Output::Text);
        assert!(accepted);
        assert_eq!(
            text,
            "-: ok\n  all GPUs: 2 units of `nvidia.com/gpu` each, 1/2 of memory and threads\n  \
             a container may ask for several units, which come from one GPU and add up\n  \
             the GPU with the most free units is used first\n"
        );
    }

    #[test]
    fn a_refused_config_is_shown_with_its_place() {
        let (accepted, text) = answer(BAD, Output::Text);
        assert!(!accepted);
        assert!(text.starts_with("-:2:1: unknown key `mps` at the top level\n"), "{text}");
        assert!(text.contains("2 | mps: {}\n  | ^\nhint: "), "{text}");
    }

    #[test]
    fn a_file_that_cannot_be_read_keeps_no_other_from_being_checked() {
        let args =
            CheckArgs { files: vec!["/nowhere/x.yaml".into(), "-".into()], output: Output::Text };
        let mut out = Vec::new();
        let outcome = check(&args, &mut GOOD.as_bytes(), &mut out).unwrap();
        assert_eq!(outcome, Outcome::Unread);
        assert!(String::from_utf8(out).unwrap().starts_with("-: ok\n"));
    }

    #[test]
    fn nothing_at_all_is_told() {
        assert!(answer("", Output::Text).1.starts_with("-: ok, but empty\n"));
        let (accepted, text) = answer("kind: ConfigMap\n", Output::Text);
        assert!(!accepted && text.contains("no config in it"), "{text}");
    }

    #[test]
    fn each_key_of_a_config_map_is_checked_by_its_name() {
        let manifest =
            "kind: ConfigMap\ndata:\n  good: '{}'\n  bad: |\n    version: v1\n    mps: {}\n";
        let (accepted, text) = answer(manifest, Output::Json);
        assert!(!accepted);
        let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["configs"][0]["name"], "-[bad]");
        assert_eq!(answer["configs"][0]["line"], 2);
        assert_eq!(answer["configs"][1]["name"], "-[good]");
        assert_eq!(answer["configs"][1]["accepted"], true);
    }
}
