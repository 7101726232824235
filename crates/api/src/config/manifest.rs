//! The texts of a `ConfigMap` manifest, so that a file can be checked before it is applied.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::MAX_BYTES;

#[derive(Deserialize)]
struct Manifest {
    kind: Option<String>,
    #[serde(default)]
    data: Option<BTreeMap<String, String>>,
}

/// The configs of a `ConfigMap` manifest by key; `None` when the text isn't one.
///
/// Several documents are allowed, as in the output of `helm template`; those that aren't a
/// `ConfigMap` count for nothing.
pub fn config_map_texts(text: &str) -> Option<BTreeMap<String, String>> {
    if text.len() > MAX_BYTES.saturating_mul(2) {
        return None;
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: 32, max_nodes: 50_000, max_aliases: 1_000 },
        with_snippet: false,
    };
    let documents: Vec<Option<Manifest>> =
        serde_saphyr::from_multiple_with_options(text, options).ok()?;
    let mut maps = documents
        .into_iter()
        .flatten()
        .filter(|manifest| manifest.kind.as_deref() == Some("ConfigMap"))
        .peekable();
    maps.peek()?;
    Some(maps.flat_map(|map| map.data.unwrap_or_default()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_config_map_are_texts_of_their_own() {
        let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  mps-1x: |\n    version: v1\n  mps-2x: |\n    version: v2\n---\nkind: Service\n";
        let texts = config_map_texts(manifest).unwrap();
        assert_eq!(texts["mps-1x"], "version: v1\n");
        assert_eq!(texts["mps-2x"], "version: v2\n");
        assert_eq!(texts.len(), 2);
    }

    #[test]
    fn a_config_isnt_a_config_map() {
        for text in ["", "version: v1\n", "kind: Secret\ndata: {a: b}\n", "{", "- a\n"] {
            assert_eq!(config_map_texts(text), None, "{text:?}");
        }
        assert_eq!(config_map_texts("kind: ConfigMap\n"), Some(BTreeMap::new()));
    }
}
