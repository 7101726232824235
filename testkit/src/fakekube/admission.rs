//! The seam for admission: one hook that sees every write before it is stored.
//!
//! Calling webhooks over HTTPS is not done here; a caller who wants that implements [`Admission`]
//! with it. What is shown to the hook for each kind of write follows facts/kubernetes.md 8.3.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;

use super::error::ApiError;
use super::resource::ResourceType;

/// What a write does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A new object, or a Binding or Eviction posted to a pod.
    Create,
    /// A changed object or status.
    Update,
    /// A removal; the hook sees the old object only.
    Delete,
}

/// One write on its way into the store.
#[derive(Debug, Clone)]
pub struct Review {
    /// What the write does.
    pub operation: Operation,
    /// The kind that is written.
    pub resource: Arc<ResourceType>,
    /// The subresource, such as `status` or `binding`.
    pub subresource: Option<&'static str>,
    /// The namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// The name; empty while a name is still to be generated.
    pub name: String,
    /// The object as it would be stored; null on a delete.
    pub object: Value,
    /// The object as it is; null on a create.
    pub old_object: Value,
}

/// A hook that may change or refuse writes.
pub trait Admission: Send + Sync + 'static {
    /// Decides one write: `Ok(None)` lets it pass, `Ok(Some(object))` stores that object instead,
    /// an error refuses it.
    fn review(&self, review: Review) -> BoxFuture<'_, Result<Option<Value>, ApiError>>;
}
