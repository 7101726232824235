//! What pods say in annotations of the cards that they were given. What nodes say of their cards is
//! [`mpshare_api::inventory_annotation`].
//!
//! Amounts in a pod's annotations are only believed where its spec leaves something open, because
//! whoever may edit a pod may edit these (facts/aliyun-gpushare.md 7, point 7).

use std::collections::BTreeMap;

use thiserror::Error;

/// Container, by name or index, to card, by UUID or index, to units. Our annotation and that of
/// ACK Pro have this form, so one reader does for both.
pub(crate) type Allocation = BTreeMap<String, BTreeMap<String, u64>>;

/// A text that is no such annotation.
#[derive(Debug, Error)]
#[error("annotation `{name}` can't be read: {source}")]
pub(crate) struct AnnotationError {
    name: &'static str,
    source: serde_json::Error,
}

/// What a pod was given, in either of the two JSON forms.
pub(crate) fn allocation(name: &'static str, text: &str) -> Result<Allocation, AnnotationError> {
    serde_json::from_str(text).map_err(|source| AnnotationError { name, source })
}
