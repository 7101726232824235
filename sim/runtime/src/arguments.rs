//! runc's command line, as far as the runtime must understand it: is a container being made, from
//! which bundle, and where do errors go.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Global options with a value of their own; all others are switches.
const GLOBAL: [&str; 5] = ["log", "log-format", "root", "criu", "rootless"];

/// What matters of a command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// `--log`: where the caller looks for the reason of a failure.
    pub(crate) log: Option<PathBuf>,
    /// The bundle of a container that this command makes; `None` for every other command.
    pub(crate) bundle: Option<PathBuf>,
}

/// Reads the arguments after the program's name.
pub(crate) fn parse(arguments: &[OsString]) -> Arguments {
    let mut found = Arguments::default();
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        let Some((name, value)) = option(word) else {
            if word == "create" || word == "run" {
                found.bundle = Some(bundle(rest.as_slice()));
            }
            return found;
        };
        let takes_one = GLOBAL.iter().any(|global| name == OsStr::new(global));
        let value = match value {
            None if takes_one => rest.next().cloned(),
            value => value,
        };
        if name == "log" {
            found.log = value.map(PathBuf::from);
        }
    }
    found
}

/// The value of `--bundle`; runc's own default is the working directory.
fn bundle(arguments: &[OsString]) -> PathBuf {
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        if let Some((name, value)) = option(word)
            && (name == "bundle" || name == "b")
        {
            let value = value.or_else(|| rest.next().cloned());
            return value.map_or_else(|| PathBuf::from("."), PathBuf::from);
        }
    }
    PathBuf::from(".")
}

/// The name of an option, and the value that is in the same word.
fn option(word: &OsStr) -> Option<(&OsStr, Option<OsString>)> {
    let bytes = word.as_bytes();
    let name = bytes.strip_prefix(b"--").or_else(|| bytes.strip_prefix(b"-"))?;
    let mut parts = name.splitn(2, |byte| *byte == b'=');
    let name = parts.next().unwrap_or_default();
    let value = parts.next().map(|value| OsStr::from_bytes(value).to_owned());
    Some((OsStr::from_bytes(name), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, log: Option<&str>, bundle: Option<&str>) {
        let words: Vec<_> = line.split_whitespace().map(OsString::from).collect();
        let expected = Arguments { log: log.map(PathBuf::from), bundle: bundle.map(PathBuf::from) };
        assert_eq!(parse(&words), expected, "{line}");
    }

    #[test]
    fn create_and_run_have_a_bundle() {
        check(
            "--root /r --log /l --log-format json --systemd-cgroup create --bundle /b --pid-file /p c1",
            Some("/l"),
            Some("/b"),
        );
        check("--log=/l run -b /b c1", Some("/l"), Some("/b"));
        check("create --bundle=/b c1", None, Some("/b"));
        check("create c1", None, Some("."));
    }

    #[test]
    fn other_commands_have_none_whatever_their_words_are() {
        check("--root create --log /l start c1", Some("/l"), None);
        check("--root /r delete --force create", None, None);
        check("exec c1 create --bundle /b", None, None);
        check("", None, None);
    }
}
