//! Amounts of pinned memory as MPS reads and prints them, odd corners included.
//!
//! Every pair of input and output was seen with the real program (facts/mps.md 1.2).

use std::fmt;

/// A pinned device memory limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PinnedLimit {
    bytes: u64,
}

impl PinnedLimit {
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    /// Reads an amount; `None` is "no limit", which is also what every unreadable text means.
    ///
    /// Digits up to the first other character count; `G` or `g` right after them means GiB, and
    /// anything else, nothing included, means MiB: `100K` is 100 MiB, `1.5G` is 1 MiB.
    ///
    /// ```
    /// use mpshare_sim_state::mps::PinnedLimit;
    /// assert_eq!(PinnedLimit::parse("3000M").unwrap().to_string(), "2G");
    /// assert_eq!(PinnedLimit::parse("0G"), None);
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim_start();
        let (negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(end);
        if digits.is_empty() {
            return None;
        }
        // As strtoull: too large saturates, a minus wraps around.
        let number = digits.parse().unwrap_or(u64::MAX);
        let number = if negative { 0_u64.wrapping_sub(number) } else { number };
        let unit = if unit.starts_with(['G', 'g']) { Self::GIB } else { Self::MIB };
        Self::from_bytes(number.wrapping_mul(unit))
    }

    /// A limit of that many bytes; zero is none.
    pub fn from_bytes(bytes: u64) -> Option<Self> {
        (bytes > 0).then_some(Self { bytes })
    }

    /// Exact bytes.
    pub fn bytes(self) -> u64 {
        self.bytes
    }

    /// Whole MiB.
    pub fn mib(self) -> u64 {
        self.bytes / Self::MIB
    }
}

/// Truncates to whole GiB from 1 GiB on, as the real program does.
impl fmt::Display for PinnedLimit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.bytes >= Self::GIB {
            write!(out, "{}G", self.bytes / Self::GIB)
        } else {
            write!(out, "{}M", self.bytes / Self::MIB)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, shown: &str) {
        let limit = PinnedLimit::parse(text).map(|limit| limit.to_string()).unwrap_or_default();
        assert_eq!(limit, shown, "for `{text}`");
    }

    #[test]
    fn amounts_read_and_print_as_the_real_program_does() {
        for (text, shown) in [
            ("4G", "4G"),
            ("1024M", "1G"),
            ("3000M", "2G"),
            ("1025M", "1G"),
            ("512M", "512M"),
            ("4096", "4G"),
            ("100K", "100M"),
            ("1.5G", "1M"),
            ("4", "4M"),
            ("4g", "4G"),
            ("4GB", "4G"),
            ("4G5", "4G"),
            ("-1G", "17179869183G"),
            ("18446744073709551616", "17179869183G"),
            ("0G", ""),
            ("G", ""),
            ("M", ""),
            ("", ""),
            ("0x10M", ""),
        ] {
            check(text, shown);
        }
    }

    #[test]
    fn bytes_are_exact_where_the_print_is_not() {
        assert_eq!(PinnedLimit::parse("1919M").map(PinnedLimit::bytes), Some(0x77f0_0000));
    }
}
