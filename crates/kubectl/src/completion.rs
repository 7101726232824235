//! What shells offer: a script for the program by its own name, and what kubectl asks for when it
//! completes `kubectl inspect cgpu <TAB>`.
//!
//! For the latter kubectl runs a program named `kubectl_complete-inspect-cgpu`, which may be a
//! link to this one, with the words so far. It answers with one candidate per line, and last with
//! a colon and a number: 4 keeps the shell from offering file names.

use std::ffi::OsStr;
use std::path::Path;

use clap::{Command, CommandFactory, ValueEnum};

/// How kubectl names the programs that complete for a plugin.
const PREFIX: &str = "kubectl_complete-";

/// No file names.
const DIRECTIVE: &str = ":4";

/// A shell that a script can be written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    /// GNU Bash
    Bash,
    /// Z shell
    Zsh,
    /// Fish
    Fish,
}

/// The script for a shell.
pub(crate) fn script<C: CommandFactory>(shell: Shell, program: &str) -> Vec<u8> {
    let generator = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(generator, &mut C::command(), program, &mut script);
    script
}

/// Whether kubectl runs this program for candidates.
pub(crate) fn is_asked_by_kubectl(program: &OsStr) -> bool {
    let name = Path::new(program).file_name().and_then(OsStr::to_str);
    name.is_some_and(|name| name.starts_with(PREFIX))
}

/// The candidates for the last of these words: options of the command, or names.
pub(crate) fn candidates(command: &Command, words: &[String], names: &[String]) -> String {
    let word = words.last().map_or("", String::as_str);
    let options: Vec<String> = if word.starts_with('-') {
        command.get_arguments().filter_map(|it| Some(format!("--{}", it.get_long()?))).collect()
    } else {
        names.to_vec()
    };
    let mut text = String::new();
    for candidate in options.iter().filter(|candidate| candidate.starts_with(word)) {
        text.push_str(candidate);
        text.push('\n');
    }
    text + DIRECTIVE + "\n"
}
