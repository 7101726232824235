//! Amounts of memory and lengths of time on the command line.

use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

/// Why an argument isn't understood.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{text}` is not {expected}")]
pub struct ParseError {
    text: String,
    expected: &'static str,
}

/// Bytes: `2Gi`, `512Mi`, `64Ki` or a bare number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Amount(usize);

impl Amount {
    /// The number of bytes.
    pub fn bytes(self) -> usize {
        self.0
    }

    /// The number of whole MiB.
    pub fn mib(self) -> usize {
        self.0 >> 20
    }
}

impl FromStr for Amount {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let units = [("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
        let with_unit =
            units.iter().find_map(|(unit, size)| Some((text.strip_suffix(unit)?, *size)));
        let (number, unit) = with_unit.unwrap_or((text, 1_usize));
        let bytes = number.parse::<usize>().ok().and_then(|number| number.checked_mul(unit));
        let expected = "an amount of memory such as `2Gi`";
        bytes
            .filter(|bytes| *bytes > 0)
            .map(Self)
            .ok_or_else(|| ParseError { text: text.to_owned(), expected })
    }
}

/// How long to hold: `500ms`, `30s`, `2m` or `forever`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// For this time.
    For(Duration),
    /// Until a signal or an error.
    Forever,
}

impl FromStr for Hold {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text == "forever" {
            return Ok(Self::Forever);
        }
        let units = [("ms", 1), ("s", 1000), ("m", 60_000)];
        let time = units.iter().find_map(|(unit, milliseconds)| {
            let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
            number.checked_mul(*milliseconds).map(Duration::from_millis)
        });
        let expected = "a time such as `30s` or `forever`";
        time.map(Self::For).ok_or_else(|| ParseError { text: text.to_owned(), expected })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_binary_units_or_none() {
        assert_eq!("2Gi".parse(), Ok(Amount(2 << 30)));
        assert_eq!("512Mi".parse(), Ok(Amount(512 << 20)));
        assert_eq!("1000".parse(), Ok(Amount(1000)));
        for text in ["", "Gi", "0", "2G", "-1Mi", "99999999999Gi"] {
            assert!(text.parse::<Amount>().is_err(), "{text}");
        }
    }

    #[test]
    fn times_have_a_unit_or_are_forever() {
        assert_eq!("500ms".parse(), Ok(Hold::For(Duration::from_millis(500))));
        assert_eq!("30s".parse(), Ok(Hold::For(Duration::from_secs(30))));
        assert_eq!("forever".parse(), Ok(Hold::Forever));
        assert!("30".parse::<Hold>().is_err());
    }
}
