//! `/proc/PID/stat`.

use crate::pid::Pid;

/// What is needed of a stat line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// `R`, `S`, `Z` and so on.
    pub state: char,
    /// The parent; `None` for the first process.
    pub parent: Option<Pid>,
    /// When it started, in clock ticks since boot.
    pub start: u64,
}

impl Stat {
    /// Whether it still runs: a zombie doesn't.
    pub const fn lives(&self) -> bool {
        !matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// Reads a stat line. The program's name, in parentheses, may hold anything, parentheses and line
/// breaks too.
pub fn parse_stat(text: &str) -> Option<Stat> {
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    // State is field 3 and the parent field 4; the start is field 22.
    let start = fields.nth(17)?.parse().ok()?;
    Some(Stat { state, parent: Pid::new(parent), start })
}
