//! YAML whose form is somebody else's, manifests and kubeconfigs, as JSON values. The YAML library
//! makes code for each type that it reads, so that for whole families of types it is a large part
//! of the program; from a value they are read by less. Our own format is read in place, see
//! [`crate::config`]: reports need its lines and columns.

use serde_json::Value;
use thiserror::Error;

/// A text isn't YAML, or more than any sensible document.
#[derive(Debug, Error)]
#[error("this is no YAML that can be read: {0}")]
pub struct YamlError(Box<serde_saphyr::Error>);

/// The documents of a text; empty ones count for nothing.
pub fn documents(text: &str) -> Result<Vec<Value>, YamlError> {
    // No snippets: a kubeconfig has secrets, and errors are logged.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: 32, max_nodes: 50_000, max_aliases: 1_000 },
        with_snippet: false,
    };
    serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| YamlError(Box::new(error)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_document_is_a_value_and_an_empty_one_none() {
        let text = "a: [1, x]\n---\n---\n- {b: null}\n";
        assert_eq!(documents(text).unwrap(), [json!({"a": [1, "x"]}), json!([{"b": null}])]);
        assert!(documents("").unwrap().is_empty());
    }

    #[test]
    fn an_error_does_not_quote_the_text() {
        let error = documents("token: hunter2\n: [").unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}
