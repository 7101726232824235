//! The report on a refused config: position, what is wrong, the line with a caret, a hint.

/// The longest part of a line that a report shows, in characters.
const SHOWN: usize = 100;

/// A config that was refused: position, what is wrong, and the whole report with the offending
/// line, a caret and a hint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{report}")]
pub struct ConfigError {
    /// 1-based line; 0 when no line is to blame.
    pub line: usize,
    /// 1-based column.
    pub column: usize,
    /// One line: what is wrong, with its hint.
    pub message: String,
    /// Several lines, for a terminal.
    pub report: String,
}

impl ConfigError {
    /// The message with its position, on one line.
    pub fn sentence(&self) -> String {
        if self.line == 0 {
            self.message.clone()
        } else {
            format!("line {}, column {}: {}", self.line, self.column, self.message)
        }
    }
}

/// A place in the text; both numbers count characters from 1, and are 0 where it isn't known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl Position {
    pub(crate) const UNKNOWN: Self = Self { line: 0, column: 0 };
}

/// What is wrong, before it is set against the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mistake {
    pub(crate) at: Position,
    pub(crate) what: String,
    pub(crate) hint: String,
}

impl Mistake {
    pub(crate) fn new(at: Position, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { at, what: what.into(), hint: hint.into() }
    }

    /// Moves the place back to the key above it: YAML gives a mapping the place of its first key.
    pub(crate) fn at_key(mut self, key: &str, text: &str) -> Self {
        let end = self.at.line;
        let above = lines(text).enumerate().take(end).filter_map(|(n, line)| {
            let trimmed = line.trim_start_matches([' ', '-', '{', '"']);
            let column = line.chars().count() - trimmed.chars().count() + 1;
            trimmed.starts_with(key).then_some(Position { line: n + 1, column })
        });
        self.at = above.last().unwrap_or(self.at);
        self
    }

    pub(crate) fn report(self, name: &str, text: &str) -> ConfigError {
        let Position { line, column } = self.at;
        let name = printable(name);
        let message = format!("{}; hint: {}", printable(&self.what), printable(&self.hint));
        let head = if line == 0 { name } else { format!("{name}:{line}:{column}") };
        let excerpt = excerpt(text, self.at).unwrap_or_default();
        let report = format!(
            "{head}: {}\n{excerpt}hint: {}\n",
            printable(&self.what),
            printable(&self.hint)
        );
        ConfigError { line, column, message, report }
    }
}

/// The offending line and a caret below the column.
fn excerpt(text: &str, at: Position) -> Option<String> {
    let line = lines(text).nth(at.line.checked_sub(1)?)?;
    let before = at.column.checked_sub(1)?;
    // A very long line (JSON) is shown from a little before the column.
    let skip = if before >= SHOWN { before - SHOWN / 2 } else { 0 };
    let shown: String = line.chars().skip(skip).take(SHOWN).collect();
    // Tabs stay tabs, so that the caret stands below its character whatever their width is.
    let indent: String =
        shown.chars().take(before - skip).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    let number = at.line.to_string();
    let margin = " ".repeat(number.len());
    let shown = printable(&shown);
    Some(format!("{margin} |\n{number} | {shown}\n{margin} | {indent}^\n"))
}

/// The lines as YAML counts them, where a carriage return alone ends one too.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split('\n').flat_map(|line| {
        let line = line.strip_suffix('\r').unwrap_or(line);
        line.split('\r')
    })
}

/// A text that can't drive the terminal it is printed on.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_stands_below_the_column_also_after_tabs_and_in_long_lines() {
        let at = Position { line: 2, column: 3 };
        let report = Mistake::new(at, "w", "h").report("f", "a\n\tbcd\n").report;
        assert_eq!(report, "f:2:3: w\n  |\n2 | \tbcd\n  | \t ^\nhint: h\n");

        let long = format!("{}X{}", "a".repeat(500), "b".repeat(500));
        let at = Position { line: 1, column: 501 };
        let report = Mistake::new(at, "w", "h").report("f", &long).report;
        let lines: Vec<&str> = report.lines().collect();
        assert_eq!(lines[2].find('X'), lines[3].find('^'));
        assert!(lines[2].len() < 120);
    }

    #[test]
    fn a_config_cant_send_control_sequences_to_the_terminal() {
        let at = Position { line: 1, column: 1 };
        let error = Mistake::new(at, "`\u{1b}[2J`", "h").report("f", "\u{1b}[2J: 1");
        assert!(!error.report.contains('\u{1b}') && !error.message.contains('\u{1b}'));
    }

    #[test]
    fn a_position_outside_of_the_text_shows_no_line() {
        let at = Position { line: 7, column: 1 };
        let report = Mistake::new(at, "w", "h").report("f", "a").report;
        assert_eq!(report, "f:7:1: w\nhint: h\n");
        let report = Mistake::new(Position::UNKNOWN, "w", "h").report("f", "a").report;
        assert_eq!(report, "f: w\nhint: h\n");
    }
}
