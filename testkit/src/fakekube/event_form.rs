//! Events exist once and are served in two forms: `v1` and `events.k8s.io/v1`.
//!
//! They are stored in the first. The second renames fields and calls the old counters deprecated.

use serde_json::{Map, Value};

use super::object::{Object, as_map};
use super::resource::ResourceType;

/// `events.k8s.io/v1` name on the left, `v1` name on the right; other fields are called the same.
const RENAMED: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

/// A body as a client of this resource sends it, in the form of the store.
pub(crate) fn to_stored(resource: &ResourceType, mut body: Value) -> Value {
    if resource.is_new_style_event() {
        rename(as_map(&mut body), |(new, old)| (new, old));
    }
    body
}

/// A stored object in the form that this resource serves, type names included.
pub(crate) fn to_served(resource: &ResourceType, object: &Object) -> Value {
    let mut value = object.value().clone();
    if resource.plural == "events" {
        let fields = as_map(&mut value);
        fields.insert("apiVersion".to_owned(), resource.api_version().into());
        if resource.is_new_style_event() {
            rename(fields, |(new, old)| (old, new));
        }
    }
    value
}

type Name = &'static str;

fn rename(fields: &mut Map<String, Value>, direction: impl Fn((Name, Name)) -> (Name, Name)) {
    for pair in RENAMED {
        let (from, to) = direction(pair);
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
}
