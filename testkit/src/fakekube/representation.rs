//! The forms in which a client can have objects: whole, metadata only, or as a printed table.
//!
//! The `Accept` header chooses. Bodies are JSON always: a client that prefers protobuf falls back.

use serde_json::{Value, json};

use super::event_form::to_served;
use super::list::Page;
use super::object::Object;
use super::query::Query;
use super::resource::{Origin, ResourceType};
use super::table;

/// The chosen form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The objects themselves.
    Whole,
    /// `PartialObjectMetadata`.
    Metadata,
    /// `Table`, with this much of each object in its row.
    Table(Include),
}

/// The `includeObject` parameter of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Include {
    /// Cells only.
    Nothing,
    /// The object's metadata: the default.
    Metadata,
    /// The whole object.
    Object,
}

impl Form {
    /// The first form in the header that this server has.
    pub(crate) fn chosen(accept: &str, query: &Query) -> Self {
        let include = match query.text("includeObject") {
            Some("None") => Include::Nothing,
            Some("Object") => Include::Object,
            _ => Include::Metadata,
        };
        accept
            .split(',')
            .find_map(|clause| {
                let mut parts = clause.split(';').map(str::trim);
                if !matches!(parts.next(), Some("application/json" | "application/*" | "*/*")) {
                    return None;
                }
                let parts: Vec<&str> = parts.collect();
                let wanted = parts.iter().find_map(|part| part.strip_prefix("as="));
                match wanted {
                    None => Some(Self::Whole),
                    // v1beta1 of the meta group is gone from servers.
                    Some(_) if !parts.contains(&"v=v1") => None,
                    Some("Table") => Some(Self::Table(include)),
                    Some("PartialObjectMetadata" | "PartialObjectMetadataList") => {
                        Some(Self::Metadata)
                    }
                    Some(_) => None,
                }
            })
            .unwrap_or(Self::Whole)
    }

    /// One object.
    pub(crate) fn one(self, resource: &ResourceType, object: &Object) -> Value {
        match self {
            Self::Whole => to_served(resource, object),
            Self::Metadata => partial(object),
            Self::Table(include) => {
                let meta = json!({"resourceVersion": object.version_text()});
                table::table(resource, &meta, &[object], |o| included(include, resource, o))
            }
        }
    }

    /// A page of objects.
    pub(crate) fn list(self, resource: &ResourceType, page: &Page) -> Value {
        let metadata = list_metadata(page);
        match self {
            Self::Whole => {
                let items: Vec<Value> =
                    page.objects.iter().map(|object| item(resource, object)).collect();
                json!({
                    "kind": format!("{}List", resource.kind),
                    "apiVersion": resource.api_version(),
                    "metadata": metadata,
                    "items": items,
                })
            }
            Self::Metadata => {
                let items: Vec<Value> = page.objects.iter().map(|o| partial(o)).collect();
                json!({
                    "kind": "PartialObjectMetadataList",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": metadata,
                    "items": items,
                })
            }
            Self::Table(include) => {
                let objects: Vec<&Object> = page.objects.iter().map(AsRef::as_ref).collect();
                table::table(resource, &metadata, &objects, |o| included(include, resource, o))
            }
        }
    }

    /// A bookmark, which has the type of the objects that the watch sends.
    pub(crate) fn bookmark(self, resource: &ResourceType, bookmark: Value) -> Value {
        match self {
            Self::Whole => bookmark,
            Self::Metadata => retyped(bookmark, "PartialObjectMetadata"),
            Self::Table(_) => {
                let metadata = bookmark.get("metadata").cloned().unwrap_or_default();
                table::table(resource, &metadata, &[], |_| Value::Null)
            }
        }
    }
}

fn list_metadata(page: &Page) -> Value {
    let mut metadata = serde_json::Map::new();
    metadata.insert("resourceVersion".to_owned(), page.revision.to_string().into());
    if let Some(next) = &page.next {
        metadata.insert("continue".to_owned(), next.clone().into());
    }
    if let Some(remaining) = page.remaining {
        metadata.insert("remainingItemCount".to_owned(), remaining.into());
    }
    Value::Object(metadata)
}

/// An object inside a list: built-in kinds don't repeat their type there.
fn item(resource: &ResourceType, object: &Object) -> Value {
    let mut value = to_served(resource, object);
    if let (Origin::BuiltIn, Some(fields)) = (resource.origin, value.as_object_mut()) {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    value
}

fn partial(object: &Object) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object.value().get("metadata"),
    })
}

fn retyped(mut value: Value, kind: &str) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.insert("kind".to_owned(), kind.into());
        fields.insert("apiVersion".to_owned(), "meta.k8s.io/v1".into());
    }
    value
}

fn included(include: Include, resource: &ResourceType, object: &Object) -> Value {
    match include {
        Include::Nothing => Value::Null,
        Include::Metadata => partial(object),
        Include::Object => to_served(resource, object),
    }
}
