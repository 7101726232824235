//! Watches: a stream of JSON lines that follows the store's log from a version on.
//!
//! A watch keeps nothing but its place in the log, so it can't lose a change; if its place has been
//! compacted away it says 410 and ends, in the form of the real server: an ERROR event in a
//! response that began well.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use futures::Stream;
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::cluster::{Cluster, WatchEnd};
use super::error::ApiError;
use super::list::Selection;
use super::object::Object;
use super::query::Query;
use super::representation::Form;
use super::store::Change;

/// The longest watch that was not given a time limit (the real server picks 30 to 60 minutes).
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(30);

/// Why a watch's response breaks off.
#[derive(Debug, thiserror::Error)]
#[error("injected fault: the watch connection breaks")]
pub(crate) struct BrokenConnection;

/// Starts a watch; the stream ends by its time limit, by a fault or with the server.
pub(crate) fn follow(
    cluster: Arc<Cluster>,
    selection: Selection,
    query: &Query,
    form: Form,
) -> Result<impl Stream<Item = Result<Bytes, BrokenConnection>> + use<>, ApiError> {
    let watcher = Watcher::new(cluster, selection, query, form)?;
    Ok(futures::stream::unfold(watcher, |mut watcher| async move {
        let item = watcher.next().await?;
        Some((item, watcher))
    }))
}

struct Watcher {
    cluster: Arc<Cluster>,
    selection: Selection,
    form: Form,
    /// The log has been read up to this version.
    place: u64,
    lines: VecDeque<Bytes>,
    bookmarks: Option<Interval>,
    deadline: Instant,
    revisions: Receiver<u64>,
    ends: Receiver<WatchEnd>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    /// What is in `lines` goes out, then the response ends.
    Ending,
    /// The response breaks off.
    Broken,
}

/// What a waiting watch wakes up for.
enum Wake {
    Changed,
    Bookmark,
    End,
    Told,
}

impl Watcher {
    fn new(
        cluster: Arc<Cluster>,
        selection: Selection,
        query: &Query,
        form: Form,
    ) -> Result<Self, ApiError> {
        let wants_bookmarks = query.is_set("allowWatchBookmarks");
        let timeout = query
            .number("timeoutSeconds")?
            .filter(|seconds| *seconds != 0)
            .map_or(DEFAULT_TIMEOUT, Duration::from_secs);
        let bookmarks = wants_bookmarks.then(|| {
            let period = cluster.bookmark_interval;
            let mut interval = tokio::time::interval_at(Instant::now() + period, period);
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        });
        let mut watcher = Self {
            revisions: cluster.revisions(),
            ends: cluster.watch_ends(),
            place: 0,
            lines: VecDeque::new(),
            bookmarks,
            deadline: Instant::now() + timeout,
            state: State::Running,
            cluster,
            selection,
            form,
        };
        watcher.begin(query)?;
        Ok(watcher)
    }

    /// Finds the place in the log; without a version the present state comes first, as additions.
    fn begin(&mut self, query: &Query) -> Result<(), ApiError> {
        let streams_list = query.is_set("sendInitialEvents");
        if streams_list && query.text("resourceVersionMatch") != Some("NotOlderThan") {
            return Err(ApiError::new(
                422,
                "Invalid",
                "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: \
                 sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ));
        }
        let from = query.number("resourceVersion")?.filter(|version| *version != 0);
        if let (Some(from), false) = (from, streams_list) {
            self.place = from;
            return Ok(());
        }
        let (revision, objects) = self.selection.now(&self.cluster);
        self.place = revision;
        for object in objects {
            self.push_object("ADDED", &object);
        }
        if streams_list {
            self.push_bookmark(json!({"k8s.io/initial-events-end": "true"}));
        }
        Ok(())
    }

    async fn next(&mut self) -> Option<Result<Bytes, BrokenConnection>> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Some(Ok(line));
            }
            match self.state {
                State::Running => {}
                State::Ending => return None,
                State::Broken => {
                    self.state = State::Ending;
                    return Some(Err(BrokenConnection));
                }
            }
            // Seen before the log is read: a change after that wakes `wait` at once.
            self.revisions.borrow_and_update();
            if self.read_log() {
                continue;
            }
            match self.wait().await {
                Wake::Changed => {}
                Wake::Bookmark => self.push_bookmark(json!({})),
                Wake::End => self.state = State::Ending,
                Wake::Told => {
                    self.state = match *self.ends.borrow() {
                        WatchEnd::Closed => State::Ending,
                        WatchEnd::Broken => State::Broken,
                    };
                }
            }
        }
    }

    async fn wait(&mut self) -> Wake {
        let bookmark = async {
            match &mut self.bookmarks {
                Some(interval) => interval.tick().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.cluster.shutdown.cancelled() => Wake::End,
            () = tokio::time::sleep_until(self.deadline) => Wake::End,
            told = self.ends.changed() => if told.is_ok() { Wake::Told } else { Wake::End },
            changed = self.revisions.changed() => {
                if changed.is_ok() { Wake::Changed } else { Wake::End }
            }
            _ = bookmark => Wake::Bookmark,
        }
    }

    /// Reads on in the log; false when there was nothing new.
    fn read_log(&mut self) -> bool {
        let changes = match self.cluster.read(|store| store.since(self.place)) {
            Ok(changes) => changes,
            Err(oldest) => {
                let gone = ApiError::too_old(self.place, oldest.0);
                self.push_line("ERROR", &gone.to_status());
                self.state = State::Ending;
                return true;
            }
        };
        for change in &changes {
            self.place = change.revision;
            if self.selection.concerns(change) {
                self.push_change(change);
            }
        }
        !changes.is_empty()
    }

    /// A change as the selection sees it: an object that stops matching is deleted for it.
    fn push_change(&mut self, change: &Change) {
        let before = change.before.as_ref().is_some_and(|object| self.selection.matches(object));
        let after = !change.removed && self.selection.matches(&change.after);
        let kind = match (before, after) {
            (false, false) => return,
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
        };
        for _ in 0..self.cluster.faults.watch_copies() {
            self.push_object(kind, &change.after);
        }
    }

    fn push_object(&mut self, kind: &str, object: &Object) {
        let value = self.form.one(&self.selection.resource, object);
        self.push_line(kind, &value);
    }

    fn push_bookmark(&mut self, annotations: Value) {
        let mut metadata = json!({"resourceVersion": self.place.to_string()});
        if let (Some(fields), Some(false)) =
            (metadata.as_object_mut(), annotations.as_object().map(serde_json::Map::is_empty))
        {
            fields.insert("annotations".to_owned(), annotations);
        }
        let resource = &self.selection.resource;
        let object = json!({
            "apiVersion": resource.api_version(),
            "kind": resource.kind,
            "metadata": metadata,
        });
        let object = self.form.bookmark(resource, object);
        self.push_line("BOOKMARK", &object);
    }

    fn push_line(&mut self, kind: &str, object: &Value) {
        let mut line = json!({"type": kind, "object": object}).to_string();
        line.push('\n');
        self.lines.push_back(line.into());
    }
}
