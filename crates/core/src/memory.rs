//! GPU memory in whole MiB, the grain of MPS limits.

use std::fmt;
use std::iter::Sum;
use std::str::FromStr;

use thiserror::Error;

const MIB: u64 = 1024 * 1024;

/// An amount of GPU memory in whole MiB.
///
/// ```
/// use mpshare_core::Memory;
/// let share: Memory = "7Gi".parse().unwrap();
/// assert_eq!(share.mib(), 7168);
/// assert_eq!(share.to_string(), "7 GiB");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Memory(u64);

/// Why a text isn't an amount of memory.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParseMemoryError {
    /// No whole number with one of the known units.
    #[error(
        "`{0}` is no amount of memory; write a whole number with a unit, such as `7Gi` or `512Mi`"
    )]
    Form(String),
    /// A number of bytes that isn't a whole number of MiB.
    #[error("`{0}` bytes is not a whole number of MiB")]
    NotWholeMib(u64),
    /// More than 2^64 bytes.
    #[error("`{0}` is more memory than can be counted")]
    TooLarge(String),
}

impl Memory {
    /// None at all.
    pub const ZERO: Self = Self(0);

    /// An amount in MiB.
    pub const fn from_mib(mib: u64) -> Self {
        Self(mib)
    }

    /// An amount in GiB; saturates far beyond any card.
    pub const fn from_gib(gib: u64) -> Self {
        Self(gib.saturating_mul(1024))
    }

    /// The whole MiB in a number of bytes; a rest is dropped.
    pub const fn from_bytes_floor(bytes: u64) -> Self {
        Self(bytes / MIB)
    }

    /// In MiB.
    pub const fn mib(self) -> u64 {
        self.0
    }

    /// In bytes; saturates far beyond any card.
    pub const fn bytes(self) -> u64 {
        self.0.saturating_mul(MIB)
    }

    /// The sum, or `None` when it can't be counted.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    /// The sum, at most the largest amount there is.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// What is left after taking `other` away; nothing when that is more.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// `n` times the amount.
    #[must_use]
    pub const fn times(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }

    /// One of `parts` equal parts, rounded down; the whole for 0 or 1 parts.
    #[must_use]
    pub fn split(self, parts: u32) -> Self {
        Self(self.0.checked_div(u64::from(parts)).unwrap_or(self.0))
    }

    /// How many pieces of size `piece` fit.
    pub fn pieces_of(self, piece: Self) -> u64 {
        self.0.checked_div(piece.0).unwrap_or(0)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 >= 1024 && self.0.is_multiple_of(1024) {
            write!(f, "{} GiB", self.0 / 1024)
        } else {
            write!(f, "{} MiB", self.0)
        }
    }
}

impl Sum for Memory {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        Self(iter.fold(0, |sum, memory| sum.saturating_add(memory.0)))
    }
}

impl FromStr for Memory {
    type Err = ParseMemoryError;

    /// Accepts `7Gi`, `7GiB`, `7 GiB`, `512Mi`, `512MiB`, `512M`, `7G` (binary, as MPS reads them)
    /// and plain bytes in whole MiB.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let form = || ParseMemoryError::Form(text.to_owned());
        if number.is_empty() {
            return Err(form());
        }
        let too_large = || ParseMemoryError::TooLarge(text.to_owned());
        let number: u64 = number.parse().map_err(|_| too_large())?;
        let mib = match unit.trim() {
            "Gi" | "GiB" | "G" => number.checked_mul(1024).ok_or_else(too_large)?,
            "Mi" | "MiB" | "M" => number,
            "" if number.is_multiple_of(MIB) => number / MIB,
            "" => return Err(ParseMemoryError::NotWholeMib(number)),
            _ => return Err(form()),
        };
        if mib.checked_mul(MIB).is_none() {
            return Err(too_large());
        }
        Ok(Self(mib))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, mib: u64) {
        assert_eq!(text.parse::<Memory>(), Ok(Memory::from_mib(mib)), "{text}");
    }

    #[test]
    fn reads_the_usual_forms() {
        check("7Gi", 7168);
        check("7 GiB", 7168);
        check("512M", 512);
        check("4294967296", 4096);
        check("0", 0);
    }

    #[test]
    fn refuses_fractions_decimal_units_and_what_is_no_number() {
        for text in ["1.5Gi", "", "Gi", "7GB", "-1Gi", "7k", "0x10M"] {
            assert!(matches!(text.parse::<Memory>(), Err(ParseMemoryError::Form(_))), "{text}");
        }
        assert_eq!("1000".parse::<Memory>(), Err(ParseMemoryError::NotWholeMib(1000)));
        assert!(matches!(
            "99999999999999999999Gi".parse::<Memory>(),
            Err(ParseMemoryError::TooLarge(_))
        ));
        assert!(matches!("17592186044416Mi".parse::<Memory>(), Err(ParseMemoryError::TooLarge(_))));
    }

    proptest! {
        #[test]
        fn display_reads_back(mib in 0u64..(1 << 40)) {
            let memory = Memory::from_mib(mib);
            prop_assert_eq!(memory.to_string().parse::<Memory>(), Ok(memory));
        }

        #[test]
        fn the_parts_never_exceed_the_whole(mib in 0u64..(1 << 40), parts in 1u32..100) {
            let whole = Memory::from_mib(mib);
            prop_assert!(whole.split(parts).times(parts.into()) <= whole);
        }
    }
}
