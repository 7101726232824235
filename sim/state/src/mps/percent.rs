//! Active thread percentages as MPS reads and prints them.

use std::fmt;

/// A percentage in (0, 100].
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Percent(f64);

impl Percent {
    /// All of the card.
    pub const FULL: Self = Self(100.0);

    /// Reads the number at the start of `text`; `None` when there is none in (0, 100].
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim_start();
        let is_part = |letter: char| letter.is_ascii_digit() || matches!(letter, '.' | '+' | '-');
        let end = text.find(|letter| !is_part(letter)).unwrap_or(text.len());
        let number: f64 = text.get(..end)?.parse().ok()?;
        (number > 0.0 && number <= 100.0).then_some(Self(number))
    }

    /// Tenths of a percent, rounded as the print rounds.
    pub fn tenths(self) -> u32 {
        self.to_string().replace('.', "").parse().unwrap_or(0)
    }

    /// The number as it was given.
    pub fn value(self) -> f64 {
        self.0
    }
}

/// One decimal always (facts/mps.md 1.2): 12.34567 shows as 12.3, and 0.04 as 0.0.
impl fmt::Display for Percent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:.1}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_read_and_print_as_the_real_program_does() {
        let shown = |text| Percent::parse(text).map(|percent| percent.to_string());
        for (text, expected) in
            [("25", "25.0"), ("33.5", "33.5"), ("12.34567", "12.3"), ("0.04", "0.0")]
        {
            assert_eq!(shown(text).as_deref(), Some(expected), "for `{text}`");
        }
        for text in ["0", "-5", "150", "abc", "", "100.5"] {
            assert_eq!(shown(text), None, "for `{text}`");
        }
    }

    #[test]
    fn tenths_follow_the_print() {
        assert_eq!(Percent::FULL.tenths(), 1000);
        assert_eq!(Percent::parse("12.34567").unwrap().tenths(), 123);
    }
}
