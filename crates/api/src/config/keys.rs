//! What an unknown key was meant to be: one that belongs elsewhere, or a slip of the pen.

use super::mistake::{Mistake, Position};

/// Every section and its keys; where a key occurs in several sections, the first one is meant.
/// (A test compares this with the JSON Schema.)
const SECTIONS: &[(&str, &[&str])] = &[
    ("sharing.mps", &["renameByDefault", "failRequestsGreaterThanOne", "resources"]),
    (
        "sharing.mps.resources[]",
        &["name", "rename", "devices", "replicas", "memoryUnit", "reserve"],
    ),
    ("", &["version", "flags", "resources", "sharing", "imex"]),
    ("sharing", &["timeSlicing", "mps"]),
    (
        "flags",
        &[
            "migStrategy",
            "failOnInitError",
            "mpsRoot",
            "nvidiaDriverRoot",
            "nvidiaDevRoot",
            "gdrcopyEnabled",
            "gdsEnabled",
            "mofedEnabled",
            "useNodeFeatureAPI",
            "deviceDiscoveryStrategy",
            "plugin",
            "gfd",
        ],
    ),
    (
        "flags.plugin",
        &[
            "passDeviceSpecs",
            "deviceListStrategy",
            "deviceIDStrategy",
            "cdiAnnotationPrefix",
            "nvidiaCTKPath",
            "containerDriverRoot",
            "sharedDevicesAllocationPolicy",
        ],
    ),
    ("flags.gfd", &["oneshot", "noTimestamp", "sleepInterval", "outputFile", "machineTypeFile"]),
    ("imex", &["channelIDs", "required"]),
    ("resources", &["gpus", "mig"]),
    ("resources.gpus[]", &["pattern", "name"]),
];

/// The farthest that two keys may differ to be taken for each other.
const NEAR: usize = 2;

/// A mistake about `key`, which the section with the keys `known` doesn't have.
pub(super) fn unknown(at: Position, key: &str, known: &[&str]) -> Mistake {
    let here = SECTIONS.iter().find(|(_, keys)| *keys == known);
    let place = here.map_or("", |(path, _)| *path);
    let what = if place.is_empty() {
        format!("unknown key `{key}` at the top level")
    } else {
        format!("unknown key `{key}` in `{place}`")
    };
    Mistake::new(at, what, hint(key, known))
}

fn hint(key: &str, known: &[&str]) -> String {
    if let Some(near) = nearest(key, known) {
        return format!("did you mean `{near}`?");
    }
    let elsewhere = |key: &str| SECTIONS.iter().find(|(_, keys)| keys.contains(&key));
    let meant = elsewhere(key).map(|section| (section, key)).or_else(|| {
        let all: Vec<&str> = SECTIONS.iter().flat_map(|(_, keys)| *keys).copied().collect();
        let near = nearest(key, &all)?;
        elsewhere(near).map(|section| (section, near))
    });
    match meant {
        Some((("", _), near)) => format!("`{near}` belongs at the top level"),
        Some(((path, _), near)) => format!("`{near}` belongs below `{path}`"),
        None => format!("the keys here are `{}`", known.join("`, `")),
    }
}

/// The key that a text was meant to be, if one is near enough; also for values.
pub(super) fn nearest<'a>(text: &str, known: &[&'a str]) -> Option<&'a str> {
    let text = plain(text);
    known
        .iter()
        .map(|key| (strsim::damerau_levenshtein(&text, &plain(key)), *key))
        .min()
        .filter(|(distance, key)| *distance <= NEAR && *distance < key.len() / 2)
        .map(|(_, key)| key)
}

/// `mps-root`, `MPS_ROOT` and `mpsRoot` are one: they are the flag, the variable and the key.
fn plain(key: &str) -> String {
    key.chars()
        .take(80)
        .filter(|c| !matches!(c, '-' | '_' | '.'))
        .collect::<String>()
        .to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_table_of_sections_is_the_schema() {
        let schema = super::super::json_schema();
        let mut objects = vec![&schema];
        objects.extend(schema["$defs"].as_object().unwrap().values());
        let from_schema: BTreeSet<BTreeSet<&str>> = objects
            .into_iter()
            .filter_map(|object| object["properties"].as_object())
            .map(|properties| properties.keys().map(String::as_str).collect())
            .collect();
        let from_table: BTreeSet<BTreeSet<&str>> =
            SECTIONS.iter().map(|(_, keys)| keys.iter().copied().collect()).collect();
        assert_eq!(from_table, from_schema);
    }

    #[test]
    fn a_key_of_another_section_is_sent_there() {
        assert_eq!(hint("mps", &["version"]), "`mps` belongs below `sharing`");
        assert_eq!(
            hint("replicas", &["timeSlicing", "mps"]),
            "`replicas` belongs below `sharing.mps.resources[]`"
        );
        assert_eq!(hint("sharing", &["passDeviceSpecs"]), "`sharing` belongs at the top level");
    }

    #[test]
    fn spellings_of_flags_and_variables_are_recognised() {
        let known = ["mpsRoot", "migStrategy"];
        assert_eq!(nearest("mps-root", &known), Some("mpsRoot"));
        assert_eq!(nearest("MIG_STRATEGY", &known), Some("migStrategy"));
        assert_eq!(nearest("frobnicate", &known), None);
    }
}
