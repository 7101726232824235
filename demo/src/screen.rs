//! What a person sees while the story goes on, and the summary for machines.

use std::io::{IsTerminal as _, Write as _, stdout};
use std::time::{Duration, Instant};

use serde::Serialize;

/// Prints a line; a reader that has gone away is no reason to fail.
macro_rules! say {
    ($($argument:tt)*) => {
        drop(writeln!(stdout(), $($argument)*))
    };
}

/// How the story is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Lines for a person, as they happen.
    Text,
    /// One JSON document at the end.
    Json,
}

/// One thing that was to be seen.
#[derive(Debug, Serialize)]
pub(crate) struct Sight {
    /// What.
    title: String,
    /// Whether it was.
    seen: bool,
    /// The numbers.
    details: Vec<String>,
    /// How long it took.
    milliseconds: u128,
}

/// The whole story, as a JSON document.
#[derive(Debug, Serialize)]
struct Report<'a> {
    passed: bool,
    seconds: f64,
    steps: &'a [Sight],
}

/// Collects and shows.
pub(crate) struct Screen {
    form: Form,
    start: Instant,
    sights: Vec<Sight>,
}

impl Screen {
    pub(crate) fn new(form: Form) -> Self {
        Self { form, start: Instant::now(), sights: Vec::new() }
    }

    /// A chapter begins.
    pub(crate) fn chapter(&self, title: &str) {
        if self.form == Form::Text {
            say!("\n{}", bold(title));
        }
    }

    /// Something was seen, with its numbers.
    pub(crate) fn seen(&mut self, title: &str, details: Vec<String>, took: Duration) {
        if self.form == Form::Text {
            say!("  {} {title} {}", green("✓"), dim(&format!("({} ms)", took.as_millis())));
            for detail in &details {
                say!("      {detail}");
            }
        }
        self.push(title, true, details, took);
    }

    /// Something wasn't seen.
    pub(crate) fn missed(&mut self, title: &str, problem: &str, took: Duration) {
        if self.form == Form::Text {
            say!("  {} {title}\n      {problem}", red("✗"));
        }
        self.push(title, false, vec![problem.to_owned()], took);
    }

    fn push(&mut self, title: &str, seen: bool, details: Vec<String>, took: Duration) {
        let milliseconds = took.as_millis();
        self.sights.push(Sight { title: title.to_owned(), seen, details, milliseconds });
    }

    /// The summary; whether the whole story was told and everything in it seen.
    pub(crate) fn finish(&self, is_told: bool) -> bool {
        let missed = self.sights.iter().filter(|sight| !sight.seen).count();
        let seconds = self.start.elapsed().as_secs_f64();
        let passed = is_told && missed == 0;
        match self.form {
            Form::Text => {
                let count = self.sights.len();
                let verdict = if passed { green("all seen") } else { red("not all seen") };
                say!("\n{verdict}: {} of {count} in {seconds:.1} s", count - missed);
            }
            Form::Json => {
                let report = Report { passed, seconds, steps: &self.sights };
                say!("{}", serde_json::to_string_pretty(&report).unwrap_or_default());
            }
        }
        passed
    }
}

fn styled(code: &str, text: &str) -> String {
    let plain = !stdout().is_terminal() || std::env::var_os("NO_COLOR").is_some();
    if plain { text.to_owned() } else { format!("\x1b[{code}m{text}\x1b[0m") }
}

fn bold(text: &str) -> String {
    styled("1", text)
}

fn green(text: &str) -> String {
    styled("32", text)
}

fn red(text: &str) -> String {
    styled("31", text)
}

fn dim(text: &str) -> String {
    styled("2", text)
}
