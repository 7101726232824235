//! How many units a Kubernetes quantity is.

use serde_json::Value;

/// The decimal and binary suffixes of whole amounts.
const SUFFIXES: [(&str, u64); 13] = [
    ("", 1),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000),
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("Ei", 1 << 60),
];

/// The units in a quantity, as the API server writes it. `gpu-mem: 10G` is ten thousand million
/// units, not ten: it is shown as what it is (facts/aliyun-gpushare.md 6, row 36). What is no
/// whole number of units is none: the API server refuses it for such resources.
pub(crate) fn units(quantity: &Value) -> u64 {
    match quantity {
        Value::String(text) => of_text(text).unwrap_or(0),
        Value::Number(number) => number.as_u64().unwrap_or(0),
        _ => 0,
    }
}

fn of_text(text: &str) -> Option<u64> {
    if let Some((digits, exponent)) = text.split_once(['e', 'E']).filter(|(_, e)| !e.is_empty())
        && let Ok(exponent) = exponent.parse()
    {
        let digits: u64 = digits.parse().ok()?;
        return digits.checked_mul(10_u64.checked_pow(exponent)?);
    }
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let (_, factor) = SUFFIXES.iter().find(|(known, _)| *known == suffix)?;
    digits.parse::<u64>().ok()?.checked_mul(*factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_form_of_a_whole_number_counts() {
        for (quantity, expected) in [
            (json!("15"), 15),
            (json!("0"), 0),
            (json!(7), 7),
            (json!("10G"), 10_000_000_000),
            (json!("1k"), 1000),
            (json!("2Ki"), 2048),
            (json!("1E"), 1_000_000_000_000_000_000),
            (json!("3e2"), 300),
        ] {
            assert_eq!(units(&quantity), expected, "{quantity}");
        }
    }

    #[test]
    fn what_is_no_whole_number_of_units_is_none() {
        for quantity in [
            json!("-1"),
            json!("1.5"),
            json!("500m"),
            json!(""),
            json!("99E"),
            json!({}),
            json!("9e99"),
        ] {
            assert_eq!(units(&quantity), 0, "{quantity}");
        }
    }
}
