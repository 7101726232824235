//! The texts of a `ConfigMap` manifest, so that a file can be checked before it is applied.

use serde_json::Value;

use super::MAX_BYTES;
use crate::yaml;

/// One config of a `ConfigMap`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigText {
    /// Name of the `ConfigMap`; empty where the manifest gives none.
    pub map: String,
    /// Its key.
    pub key: String,
    /// The config.
    pub text: String,
}

/// The configs of the `ConfigMap` manifests in a text; `None` when there is no such manifest.
///
/// Several documents are allowed, as in the output of `helm template`; those that aren't a
/// `ConfigMap` count for nothing.
pub fn config_map_texts(text: &str) -> Option<Vec<ConfigText>> {
    if text.len() > MAX_BYTES.saturating_mul(2) {
        return None;
    }
    let documents = yaml::documents(text).ok()?;
    let is_map = |document: &&Value| document.get("kind").is_some_and(|kind| kind == "ConfigMap");
    let mut maps = documents.iter().filter(is_map).peekable();
    maps.peek()?;
    Some(maps.flat_map(texts).collect())
}

fn texts(manifest: &Value) -> impl Iterator<Item = ConfigText> {
    let map = manifest.pointer("/metadata/name").map(written).unwrap_or_default();
    let data = manifest.get("data").and_then(Value::as_object).into_iter().flatten();
    data.map(move |(key, text)| ConfigText {
        map: map.clone(),
        key: key.clone(),
        text: written(text),
    })
}

/// A value as it stands in a manifest. The API server takes texts only, but what is wrong with a
/// config that is none is better said in words about configs.
fn written(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_config_map_are_texts_of_their_own() {
        let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  mps-1x: |\n    version: v1\n  mps-2x: |\n    version: v2\n---\nkind: Service\n";
        let texts = config_map_texts(manifest).unwrap();
        let found: Vec<_> = texts.iter().map(|t| (&*t.map, &*t.key, &*t.text)).collect();
        assert_eq!(found, [("a", "mps-1x", "version: v1\n"), ("a", "mps-2x", "version: v2\n")]);
    }

    #[test]
    fn a_key_of_one_map_does_not_hide_the_same_key_of_another() {
        let one = |name: &str| {
            format!("kind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{k: {name}}}\n")
        };
        let texts = config_map_texts(&format!("{}---\n{}", one("a"), one("b"))).unwrap();
        let found: Vec<_> = texts.iter().map(|t| (&*t.map, &*t.text)).collect();
        assert_eq!(found, [("a", "a"), ("b", "b")]);
    }

    #[test]
    fn a_config_isnt_a_config_map() {
        for text in ["", "version: v1\n", "kind: Secret\ndata: {a: b}\n", "{", "- a\n"] {
            assert_eq!(config_map_texts(text), None, "{text:?}");
        }
        assert_eq!(config_map_texts("kind: ConfigMap\n"), Some(Vec::new()));
    }
}
