//! Lists: what a list or watch request selects, and one page of it.

use std::sync::Arc;

use super::cluster::Cluster;
use super::error::ApiError;
use super::object::Object;
use super::query::Query;
use super::resource::ResourceType;
use super::selector::{FieldSelector, LabelSelector};
use super::store::{Change, in_scope};

/// Which objects a request is about.
#[derive(Debug, Clone)]
pub(crate) struct Selection {
    pub(crate) resource: Arc<ResourceType>,
    /// One namespace, or all.
    pub(crate) namespace: Option<String>,
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selection {
    pub(crate) fn new(
        resource: &Arc<ResourceType>,
        namespace: Option<&str>,
        query: &Query,
    ) -> Result<Self, ApiError> {
        Ok(Self {
            resource: Arc::clone(resource),
            namespace: namespace.map(str::to_owned),
            labels: LabelSelector::parse(query.text("labelSelector").unwrap_or_default())?,
            fields: FieldSelector::parse(
                resource,
                query.text("fieldSelector").unwrap_or_default(),
            )?,
        })
    }

    pub(crate) fn matches(&self, object: &Object) -> bool {
        self.labels.matches(object) && self.fields.matches(object)
    }

    /// Whether a change is to an object of this kind and namespace, selected or not.
    pub(crate) fn concerns(&self, change: &Change) -> bool {
        in_scope(&change.key, &self.resource.storage(), self.namespace.as_deref())
    }

    /// The selected objects now, with the version of that moment.
    pub(crate) fn now(&self, cluster: &Cluster) -> (u64, Vec<Arc<Object>>) {
        let storage = self.resource.storage();
        let (revision, mut objects) = cluster
            .read(|store| (store.revision(), store.list(&storage, self.namespace.as_deref())));
        objects.retain(|object| self.matches(object));
        (revision, objects)
    }

    fn at(&self, cluster: &Cluster, revision: u64) -> Result<Vec<Arc<Object>>, ApiError> {
        let storage = self.resource.storage();
        let mut objects = cluster
            .read(|store| store.list_at(&storage, self.namespace.as_deref(), revision))
            .map_err(|oldest| ApiError::too_old(revision, oldest.0))?;
        objects.retain(|object| self.matches(object));
        Ok(objects)
    }

    fn is_whole(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }
}

/// One page of a list.
pub(crate) struct Page {
    pub(crate) revision: u64,
    pub(crate) objects: Vec<Arc<Object>>,
    pub(crate) next: Option<String>,
    pub(crate) remaining: Option<usize>,
}

/// Answers a list request.
pub(crate) fn page(
    cluster: &Cluster,
    selection: &Selection,
    query: &Query,
) -> Result<Page, ApiError> {
    let (revision, objects) = match query.text("continue") {
        Some(token) => continued(cluster, selection, token)?,
        None => first(cluster, selection, query)?,
    };
    let limit = query.number("limit")?.unwrap_or(0);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if limit == 0 || objects.len() <= limit {
        return Ok(Page { revision, objects, next: None, remaining: None });
    }
    let remaining = objects.len() - limit;
    let page: Vec<_> = objects.into_iter().take(limit).collect();
    let next = page.last().map(|last| format!("{revision}.{}/{}", last.namespace(), last.name()));
    // The real server doesn't count behind a selector either.
    let remaining = selection.is_whole().then_some(remaining);
    Ok(Page { revision, objects: page, next, remaining })
}

type Snapshot = (u64, Vec<Arc<Object>>);

fn first(cluster: &Cluster, selection: &Selection, query: &Query) -> Result<Snapshot, ApiError> {
    let asked = query.number("resourceVersion")?;
    let exact = query.text("resourceVersionMatch") == Some("Exact");
    let newest = cluster.read(super::store::Store::revision);
    if let Some(asked) = asked.filter(|asked| *asked > newest) {
        let message = format!("Timeout: Too large resource version: {asked}, current: {newest}");
        return Err(ApiError::new(504, "Timeout", message));
    }
    if let (Some(asked), true) = (asked, exact) {
        return Ok((asked, selection.at(cluster, asked)?));
    }
    if let Some(frozen) = cluster.faults.frozen_at()
        && let Ok(objects) = selection.at(cluster, frozen)
    {
        return Ok((frozen, objects));
    }
    Ok(selection.now(cluster))
}

fn continued(cluster: &Cluster, selection: &Selection, token: &str) -> Result<Snapshot, ApiError> {
    let invalid = || ApiError::bad_request("continue key is not valid");
    let (revision, place) = token.split_once('.').ok_or_else(invalid)?;
    let revision = revision.parse().map_err(|_| invalid())?;
    let last = place.split_once('/').ok_or_else(invalid)?;
    let mut objects = selection.at(cluster, revision).map_err(|_| {
        ApiError::expired(
            "The provided continue parameter is too old to display a consistent list result. You \
             can start a new list without the continue parameter.",
        )
    })?;
    objects.retain(|object| (object.namespace(), object.name()) > last);
    Ok((revision, objects))
}
