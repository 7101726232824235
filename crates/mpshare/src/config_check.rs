//! `mpshare config`: says what configs mean, or where they are wrong, before a node reads them,
//! and prints the JSON Schema of their format. It knows nothing about the cards of any node.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use mpshare_api::config::{self, AcceptedConfig, ConfigError};
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
        ConfigCommand::Schema => {
            writeln!(out, "{:#}", config::json_schema()).map(|()| true).map_err(anyhow::Error::from)
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        // The reader of a pipe has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to be done when even this can't be written.
            drop(writeln!(io::stderr(), "{error:#}; hint: `-` is standard input"));
            ExitCode::from(2)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

/// One config and what was found.
struct Checked {
    name: String,
    result: Result<AcceptedConfig, ConfigError>,
}

/// Whether all configs were accepted.
fn check(args: &CheckArgs, stdin: &mut impl Read, out: &mut impl Write) -> anyhow::Result<bool> {
    let mut checked = Vec::new();
    for path in &args.files {
        let text = read(path, stdin);
        let text = text.with_context(|| format!("can't read `{}`", path.display()))?;
        checked.extend(check_text(&path.display().to_string(), &text));
    }
    match args.output {
        Output::Text => write_text(out, &checked)?,
        Output::Json => write_json(out, &checked)?,
    }
    Ok(checked.iter().all(|one| one.result.is_ok()))
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
    texts.iter().map(|(key, text)| check_one(format!("{name}[{key}]"), text)).collect()
}

fn check_one(name: String, text: &str) -> Checked {
    let result = config::parse(&name, text);
    Checked { name, result }
}

fn write_text(out: &mut impl Write, checked: &[Checked]) -> io::Result<()> {
    for Checked { name, result } in checked {
        match result {
            Ok(config) => {
                writeln!(out, "{name}: ok")?;
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
        .map(|Checked { name, result }| match result {
            Ok(config) => json!({
                "name": name,
                "accepted": true,
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
        (accepted, String::from_utf8(out).unwrap())
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

    #[test]
    fn a_file_that_isnt_there_is_no_refusal() {
        let args =
            CheckArgs { files: vec!["/nonexistent/config.yaml".into()], output: Output::Text };
        let error = check(&args, &mut io::empty(), &mut io::sink()).unwrap_err();
        assert_eq!(error.to_string(), "can't read `/nonexistent/config.yaml`");
    }
}
