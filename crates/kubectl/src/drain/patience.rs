//! For how long somebody waits.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A time as people write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Patience(pub(crate) Duration);

impl FromStr for Patience {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let seconds = match unit {
            "" | "s" => Some(1),
            "m" => Some(60),
            "h" => Some(3600),
            _ => None,
        };
        let number = number.parse::<u64>().ok();
        let seconds = number.zip(seconds).and_then(|(number, unit)| number.checked_mul(unit));
        let seconds = seconds.ok_or("it must look like `90s`, `10m` or `1h`")?;
        Ok(Self(Duration::from_secs(seconds)))
    }
}

impl fmt::Display for Patience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s", self.0.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_minutes_and_hours_are_understood_and_nothing_else() {
        let seconds = |text: &str| text.parse::<Patience>().ok().map(|it| it.0.as_secs());
        assert_eq!(seconds("90"), Some(90));
        assert_eq!(seconds("90s"), Some(90));
        assert_eq!(seconds("10m"), Some(600));
        assert_eq!(seconds("1h"), Some(3600));
        for text in ["", "m", "1d", "-1s", "1.5h", "18446744073709551615h"] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }
}
