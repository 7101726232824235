//! One stored object: a JSON value with the metadata that the server itself reads and writes.
//!
//! Nothing here knows kinds or rules; those are in `strategy` and `lifecycle`.

use serde_json::{Map, Value};

use super::error::ApiError;

/// A JSON object with `metadata`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Object(Value);

impl Object {
    /// Takes a JSON object; nulls inside are dropped, as a typed decoder drops them.
    pub(crate) fn new(mut value: Value) -> Result<Self, ApiError> {
        if !value.is_object() {
            return Err(ApiError::bad_request("the body is not a JSON object"));
        }
        drop_nulls(&mut value);
        let mut object = Self(value);
        if object.0.get("metadata").is_some_and(|m| !m.is_object()) {
            return Err(ApiError::bad_request("metadata is not a JSON object"));
        }
        object.metadata_mut();
        Ok(object)
    }

    pub(crate) fn value(&self) -> &Value {
        &self.0
    }

    /// The text at a JSON pointer.
    pub(crate) fn text(&self, pointer: &str) -> Option<&str> {
        self.0.pointer(pointer)?.as_str()
    }

    pub(crate) fn number(&self, pointer: &str) -> Option<i64> {
        self.0.pointer(pointer)?.as_i64()
    }

    pub(crate) fn name(&self) -> &str {
        self.text("/metadata/name").unwrap_or_default()
    }

    pub(crate) fn namespace(&self) -> &str {
        self.text("/metadata/namespace").unwrap_or_default()
    }

    pub(crate) fn uid(&self) -> &str {
        self.text("/metadata/uid").unwrap_or_default()
    }

    /// The resourceVersion, 0 where there is none.
    pub(crate) fn revision(&self) -> u64 {
        self.version_text().parse().unwrap_or(0)
    }

    pub(crate) fn version_text(&self) -> &str {
        self.text("/metadata/resourceVersion").unwrap_or_default()
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.0.get("metadata")?.get("labels")?.get(key)?.as_str()
    }

    pub(crate) fn is_terminating(&self) -> bool {
        self.text("/metadata/deletionTimestamp").is_some()
    }

    pub(crate) fn has_finalizers(&self) -> bool {
        self.0
            .pointer("/metadata/finalizers")
            .and_then(Value::as_array)
            .is_some_and(|list| !list.is_empty())
    }

    pub(crate) fn set_metadata(&mut self, field: &str, value: impl Into<Value>) {
        self.metadata_mut().insert(field.to_owned(), value.into());
    }

    /// Gives a metadata field the value that it has in `other`, absent included.
    pub(crate) fn copy_metadata(&mut self, field: &str, other: &Self) {
        let value = other.0.get("metadata").and_then(|m| m.get(field)).cloned();
        let metadata = self.metadata_mut();
        match value {
            Some(value) => metadata.insert(field.to_owned(), value),
            None => metadata.remove(field),
        };
    }

    /// Gives a top-level field the value that it has in `other`, absent included.
    pub(crate) fn copy_field(&mut self, field: &str, other: &Self) {
        let value = other.0.get(field).cloned();
        let fields = self.fields_mut();
        match value {
            Some(value) => fields.insert(field.to_owned(), value),
            None => fields.remove(field),
        };
    }

    pub(crate) fn fields_mut(&mut self) -> &mut Map<String, Value> {
        as_map(&mut self.0)
    }

    pub(crate) fn metadata_mut(&mut self) -> &mut Map<String, Value> {
        self.section_mut("metadata")
    }

    /// The object under a top-level field, made where it is missing.
    pub(crate) fn section_mut(&mut self, field: &str) -> &mut Map<String, Value> {
        as_map(self.fields_mut().entry(field).or_insert(Value::Null))
    }
}

/// The map inside a value; anything else is replaced by an empty one.
pub(crate) fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            unreachable!("made an object just above")
        }
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, inner| !inner.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
