//! Names, UIDs and timestamps as the server gives them out.

use k8s_openapi::jiff::Timestamp;

/// The alphabet of generated names: no vowels and nothing that looks like another character.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A fresh random UID from the kernel.
pub(crate) fn new_uid() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/uuid")
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}

/// Five random characters for `generateName`.
pub(crate) fn suffix() -> String {
    new_uid()
        .bytes()
        .filter(|byte| *byte != b'-')
        .take(10)
        .collect::<Vec<_>>()
        .chunks(2)
        .filter_map(|pair| {
            let sum = pair.iter().map(|byte| usize::from(*byte)).fold(0, |a, b| a * 31 + b);
            ALPHABET.get(sum % ALPHABET.len())
        })
        .map(|byte| char::from(*byte))
        .collect()
}

/// Now, in whole seconds, as object metadata has it.
pub(crate) fn timestamp() -> String {
    timestamp_in(0)
}

/// A moment some seconds from now.
pub(crate) fn timestamp_in(seconds: i64) -> String {
    let now = Timestamp::now().as_second().saturating_add(seconds);
    Timestamp::from_second(now).unwrap_or(Timestamp::MAX).to_string()
}

/// Seconds since a timestamp, if it is one; never negative.
pub(crate) fn seconds_since(timestamp: &str) -> Option<i64> {
    let then: Timestamp = timestamp.parse().ok()?;
    Some((Timestamp::now().as_second() - then.as_second()).max(0))
}
