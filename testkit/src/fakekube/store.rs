//! The objects, one global version, and the history that watches are served from.
//!
//! It is etcd's part: compare-and-set on one key, a log of changes that can be compacted, and
//! snapshots of the past (made by undoing the log). It knows no kinds and no rules.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::object::Object;

/// Where an object is kept: resource (`pods`, `daemonsets.apps`), namespace (empty for
/// cluster-scoped kinds) and name. The order is the order of lists.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// One entry of the log.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) key: Key,
    /// The object before, absent when it was created.
    pub(crate) before: Option<Arc<Object>>,
    /// The object after; for a removal its last state at the version of the removal.
    pub(crate) after: Arc<Object>,
    pub(crate) removed: bool,
}

/// The history that was asked for has been compacted; holds the oldest version still known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Compacted(pub(crate) u64);

/// Somebody else wrote the key in the meantime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stale;

/// What a write does to a key.
pub(crate) enum Write {
    /// The key must not exist.
    Create(Object),
    /// The key must be at this version.
    Replace(u64, Object),
    /// The key must be at this version; the object is its last state.
    Remove(u64, Object),
}

/// All state of the cluster.
pub(crate) struct Store {
    objects: BTreeMap<Key, Arc<Object>>,
    revision: u64,
    history: VecDeque<Arc<Change>>,
    /// Changes up to and including this version are forgotten.
    compacted: u64,
    capacity: usize,
}

impl Store {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            objects: BTreeMap::new(),
            revision: 1,
            history: VecDeque::new(),
            compacted: 1,
            capacity,
        }
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Object>> {
        self.objects.get(key).map(Arc::clone)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&Key, &Arc<Object>)> {
        self.objects.iter()
    }

    /// The objects of a resource, in one namespace or in all, in the order of their keys.
    pub(crate) fn list(&self, resource: &str, namespace: Option<&str>) -> Vec<Arc<Object>> {
        self.objects
            .iter()
            .filter(|(key, _)| in_scope(key, resource, namespace))
            .map(|(_, object)| Arc::clone(object))
            .collect()
    }

    /// The same list as it was at an earlier version.
    pub(crate) fn list_at(
        &self,
        resource: &str,
        namespace: Option<&str>,
        revision: u64,
    ) -> Result<Vec<Arc<Object>>, Compacted> {
        if revision >= self.revision {
            return Ok(self.list(resource, namespace));
        }
        if revision < self.compacted {
            return Err(Compacted(self.compacted));
        }
        let mut past: BTreeMap<&Key, &Arc<Object>> =
            self.objects.iter().filter(|(key, _)| in_scope(key, resource, namespace)).collect();
        let undo = self.history.iter().rev().take_while(|c| c.revision > revision);
        for change in undo.filter(|c| in_scope(&c.key, resource, namespace)) {
            match &change.before {
                Some(before) => past.insert(&change.key, before),
                None => past.remove(&change.key),
            };
        }
        Ok(past.into_values().map(Arc::clone).collect())
    }

    /// All changes after a version, oldest first.
    pub(crate) fn since(&self, revision: u64) -> Result<Vec<Arc<Change>>, Compacted> {
        if revision < self.compacted {
            return Err(Compacted(self.compacted));
        }
        let start = self.history.partition_point(|c| c.revision <= revision);
        Ok(self.history.range(start..).map(Arc::clone).collect())
    }

    /// Compare-and-set on one key; the object comes back with its new version.
    pub(crate) fn commit(&mut self, key: &Key, write: Write) -> Result<Arc<Object>, Stale> {
        let before = self.get(key);
        let current = before.as_ref().map(|object| object.revision());
        let (expected, mut object, removed) = match write {
            Write::Create(object) => (None, object, false),
            Write::Replace(at, object) => (Some(at), object, false),
            Write::Remove(at, object) => (Some(at), object, true),
        };
        if current != expected {
            return Err(Stale);
        }
        self.revision += 1;
        object.set_metadata("resourceVersion", self.revision.to_string());
        let after = Arc::new(object);
        if removed {
            self.objects.remove(key);
        } else {
            self.objects.insert(key.clone(), Arc::clone(&after));
        }
        self.remember(Change {
            revision: self.revision,
            key: key.clone(),
            before,
            after: Arc::clone(&after),
            removed,
        });
        Ok(after)
    }

    /// Forgets all history: whoever asks for a version before now gets 410.
    pub(crate) fn compact(&mut self) {
        self.history.clear();
        self.compacted = self.revision;
    }

    /// Moves the version on without a change, as writes to other resources would.
    pub(crate) fn advance(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    fn remember(&mut self, change: Change) {
        self.history.push_back(Arc::new(change));
        while self.history.len() > self.capacity {
            if let Some(oldest) = self.history.pop_front() {
                self.compacted = oldest.revision;
            }
        }
    }
}

/// Whether a key belongs to a resource and, if one is named, a namespace.
pub(crate) fn in_scope(key: &Key, resource: &str, namespace: Option<&str>) -> bool {
    key.resource == resource && namespace.is_none_or(|ns| key.namespace == ns)
}
