//! Active thread percentage, in the tenths that the control daemon echoes.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A share of a card's threads: more than 0 and at most 100 per cent, in steps of 0.1.
///
/// MPS takes decimals and shows one of them (facts/mps.md 1.2), so a tenth is the finest grain
/// that can be verified by reading back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadPercent(u16);

/// A text or number outside of (0, 100].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{0}` is no active thread percentage; it must be above 0 and at most 100, with at most one decimal"
)]
pub struct ParsePercentError(String);

impl ThreadPercent {
    /// The whole card.
    pub const FULL: Self = Self(1000);

    /// From tenths of a per cent, 1 to 1000.
    pub fn from_tenths(tenths: u32) -> Result<Self, ParsePercentError> {
        match u16::try_from(tenths) {
            Ok(value @ 1..=1000) => Ok(Self(value)),
            Ok(_) | Err(_) => Err(ParsePercentError(format!("{}.{}", tenths / 10, tenths % 10))),
        }
    }

    /// In tenths of a per cent.
    pub const fn tenths(self) -> u32 {
        self.0 as u32
    }

    /// One of `parts` equal parts, rounded down to a tenth (but never to nothing).
    #[must_use]
    pub fn split(self, parts: u32) -> Self {
        let tenths = self.tenths().checked_div(parts).unwrap_or(self.tenths());
        Self(u16::try_from(tenths.clamp(1, 1000)).unwrap_or(self.0))
    }

    /// `n` times the percentage, at most the whole card.
    #[must_use]
    pub fn times(self, n: u32) -> Self {
        let tenths = self.tenths().saturating_mul(n).clamp(1, 1000);
        Self(u16::try_from(tenths).unwrap_or(1000))
    }
}

impl fmt::Display for ThreadPercent {
    /// As the control daemon prints it: always one decimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / 10, self.0 % 10)
    }
}

impl FromStr for ThreadPercent {
    type Err = ParsePercentError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParsePercentError(text.to_owned());
        let (whole, tenth) = text.trim().split_once('.').unwrap_or((text.trim(), "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(tenth) || tenth.len() != 1 {
            return Err(error());
        }
        let whole: u32 = whole.parse().map_err(|_| error())?;
        let tenth: u32 = tenth.parse().map_err(|_| error())?;
        let tenths = whole.checked_mul(10).and_then(|w| w.checked_add(tenth)).ok_or_else(error)?;
        Self::from_tenths(tenths).map_err(|_| error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_the_control_daemon_does_and_reads_back() {
        for (tenths, text) in [(1, "0.1"), (333, "33.3"), (1000, "100.0")] {
            let percent = ThreadPercent::from_tenths(tenths).unwrap();
            assert_eq!(percent.to_string(), text);
            assert_eq!(text.parse(), Ok(percent));
        }
        assert_eq!("25".parse(), Ok(ThreadPercent(250)));
    }

    #[test]
    fn refuses_what_mps_would_ignore_without_a_word() {
        for text in ["0", "0.0", "100.1", "150", "-5", "abc", "", "1.", ".5", "12.34", "+5"] {
            assert_eq!(text.parse::<ThreadPercent>(), Err(ParsePercentError(text.to_owned())));
        }
    }

    #[test]
    fn parts_round_down_and_never_sum_to_more_than_the_card() {
        for parts in 1..=60 {
            assert!(ThreadPercent::FULL.split(parts).tenths() * parts <= 1000);
        }
        assert_eq!(ThreadPercent::FULL.split(3).tenths(), 333);
    }
}
