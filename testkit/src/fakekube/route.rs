//! The path of a request: which kind, which namespace, which object, which subresource.

use std::sync::Arc;

use super::cluster::{Cluster, Target};
use super::error::ApiError;
use super::resource::{ResourceType, Scope};

/// A path that leads to objects.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) resource: Arc<ResourceType>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

impl Route {
    pub(crate) fn of(cluster: &Cluster, path: &str) -> Result<Self, ApiError> {
        let segments: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
        let (api_version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] => ((*version).to_owned(), rest),
            ["apis", group, version, rest @ ..] => (format!("{group}/{version}"), rest),
            _ => return Err(ApiError::path_not_found()),
        };
        let (namespace, rest) = match rest {
            // `namespaces/x` and its own subresources are about the Namespace object.
            ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => (None, rest),
            ["namespaces", namespace, rest @ ..] => (Some((*namespace).to_owned()), rest),
            _ => (None, rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (plural, None, None),
            [plural, name] => (plural, Some(*name), None),
            [plural, name, subresource] => (plural, Some(*name), Some(*subresource)),
            _ => return Err(ApiError::path_not_found()),
        };
        let resource =
            cluster.resource(&api_version, plural).ok_or_else(ApiError::path_not_found)?;
        let namespaced = resource.scope == Scope::Namespaced;
        if (namespaced && name.is_some() && namespace.is_none())
            || (!namespaced && namespace.is_some())
        {
            return Err(ApiError::path_not_found());
        }
        Ok(Self {
            resource,
            namespace,
            name: name.map(str::to_owned),
            subresource: subresource.map(str::to_owned),
        })
    }

    /// The object that the path names.
    pub(crate) fn target(&self) -> Option<Target> {
        let name = self.name.as_deref()?;
        Some(Target::new(&self.resource, self.namespace.as_deref(), name))
    }
}
