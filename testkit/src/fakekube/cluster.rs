//! What all requests share: the store and its version signal, the known kinds, the hooks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::admission::{Admission, Review};
use super::error::ApiError;
use super::fault::Faults;
use super::kinds::built_in;
use super::logs::PodLogs;
use super::object::Object;
use super::resource::{ResourceType, Scope};
use super::store::{Key, Stale, Store, Write};

/// How the running watches end when they are told to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WatchEnd {
    /// The response ends properly, as when the server's own time limit is reached.
    #[default]
    Closed,
    /// The connection breaks in the middle of the response.
    Broken,
}

/// The shared state of one API server.
pub(crate) struct Cluster {
    store: Mutex<Store>,
    revisions: watch::Sender<u64>,
    watch_ends: watch::Sender<WatchEnd>,
    resources: Mutex<Vec<Arc<ResourceType>>>,
    admission: Mutex<Option<Arc<dyn Admission>>>,
    logs: Mutex<Option<Arc<dyn PodLogs>>>,
    pub(crate) faults: Faults,
    pub(crate) shutdown: CancellationToken,
    pub(crate) bookmark_interval: Duration,
}

impl Cluster {
    pub(crate) fn new(history: usize, bookmark_interval: Duration) -> Self {
        Self {
            store: Mutex::new(Store::new(history)),
            revisions: watch::Sender::new(1),
            watch_ends: watch::Sender::default(),
            resources: Mutex::new(built_in()),
            admission: Mutex::default(),
            logs: Mutex::default(),
            faults: Faults::default(),
            shutdown: CancellationToken::new(),
            bookmark_interval,
        }
    }

    /// Looks at the store; keep it short, all requests wait.
    pub(crate) fn read<R>(&self, look: impl FnOnce(&Store) -> R) -> R {
        look(&lock(&self.store))
    }

    /// Changes the store and wakes the watches.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Store) -> R) -> R {
        let mut store = lock(&self.store);
        let result = change(&mut store);
        self.revisions.send_replace(store.revision());
        result
    }

    pub(crate) fn commit(&self, key: &Key, write: Write) -> Result<Arc<Object>, Stale> {
        self.change(|store| store.commit(key, write))
    }

    /// A signal that carries the newest version.
    pub(crate) fn revisions(&self) -> watch::Receiver<u64> {
        self.revisions.subscribe()
    }

    /// A signal that tells running watches to end.
    pub(crate) fn watch_ends(&self) -> watch::Receiver<WatchEnd> {
        self.watch_ends.subscribe()
    }

    pub(crate) fn end_watches(&self, how: WatchEnd) {
        self.watch_ends.send_replace(how);
    }

    pub(crate) fn resources(&self) -> Vec<Arc<ResourceType>> {
        lock(&self.resources).clone()
    }

    pub(crate) fn register(&self, resource: ResourceType) {
        let mut resources = lock(&self.resources);
        resources.retain(|known| {
            (&known.group, &known.version, &known.plural)
                != (&resource.group, &resource.version, &resource.plural)
        });
        resources.push(Arc::new(resource));
    }

    /// The kind behind a path.
    pub(crate) fn resource(&self, api_version: &str, plural: &str) -> Option<Arc<ResourceType>> {
        self.find(|r| r.plural == plural && r.api_version() == api_version)
    }

    /// The kind that an object says it has.
    pub(crate) fn resource_of_kind(
        &self,
        api_version: &str,
        kind: &str,
    ) -> Option<Arc<ResourceType>> {
        self.find(|r| r.kind == kind && r.api_version() == api_version)
    }

    /// The kind by its plural name alone, the first of several.
    pub(crate) fn resource_of_plural(&self, plural: &str) -> Option<Arc<ResourceType>> {
        self.find(|r| r.plural == plural || r.qualified() == plural)
    }

    fn find(&self, wanted: impl Fn(&ResourceType) -> bool) -> Option<Arc<ResourceType>> {
        lock(&self.resources).iter().find(|r| wanted(r)).map(Arc::clone)
    }

    pub(crate) fn set_admission(&self, hook: Arc<dyn Admission>) {
        *lock(&self.admission) = Some(hook);
    }

    /// Asks the admission hook, if there is one: a changed object, or none.
    pub(crate) async fn admit(&self, review: Review) -> Result<Option<Object>, ApiError> {
        let hook = lock(&self.admission).as_ref().map(Arc::clone);
        let Some(hook) = hook else { return Ok(None) };
        hook.review(review).await?.map(Object::new).transpose()
    }

    pub(crate) fn set_logs(&self, provider: Arc<dyn PodLogs>) {
        *lock(&self.logs) = Some(provider);
    }

    pub(crate) fn logs(&self) -> Option<Arc<dyn PodLogs>> {
        lock(&self.logs).as_ref().map(Arc::clone)
    }
}

/// One object by its kind and place.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) resource: Arc<ResourceType>,
    /// Absent for cluster-scoped kinds.
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
}

impl Target {
    pub(crate) fn new(resource: &Arc<ResourceType>, namespace: Option<&str>, name: &str) -> Self {
        let namespaced = resource.scope == Scope::Namespaced;
        Self {
            resource: Arc::clone(resource),
            namespace: namespace.filter(|_| namespaced).map(str::to_owned),
            name: name.to_owned(),
        }
    }

    pub(crate) fn key(&self) -> Key {
        Key {
            resource: self.resource.storage(),
            namespace: self.namespace.clone().unwrap_or_default(),
            name: self.name.clone(),
        }
    }

    /// The object, or the 404 that names it.
    pub(crate) fn fetch(&self, cluster: &Cluster) -> Result<Arc<Object>, ApiError> {
        cluster
            .read(|store| store.get(&self.key()))
            .ok_or_else(|| ApiError::not_found(&self.resource, &self.name))
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
