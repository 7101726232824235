//! The JSON Schema of the format, for editors: `docs/config.schema.json`.

use super::form::Document;

/// The schema as a JSON document.
///
/// It says what a text may look like. What no schema can say (overlapping devices, which names
/// exist) only [`super::parse`] does.
pub fn json_schema() -> serde_json::Value {
    schemars::schema_for!(Document).to_value()
}
