//! What all parts of the fake kubelet share: options, the state behind one lock, and the ways to
//! be told of changes. The lock is never held across an await.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio_util::task::TaskTracker;

use super::devices::Devices;
use super::options::Options;
use super::pod::PodSpec;
use super::process::Processes;
use super::status::{Phase, PodStatus};
use super::violation::{Rpc, Violation};
use super::worker::Stop;

/// Something didn't happen in time.
#[derive(Debug, thiserror::Error)]
#[error("not within {deadline:?}: {what}")]
pub struct WaitError {
    /// What was waited for, and what was there instead.
    pub what: String,
    /// The time allowed.
    pub deadline: Duration,
}

/// A pod's status has changed.
#[derive(Debug, Clone)]
pub struct PodChange {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// UID of the pod.
    pub uid: String,
    /// Its status now.
    pub status: PodStatus,
}

/// Whether a pod was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deletion {
    None,
    /// With time for its containers; its API object goes when they have stopped.
    Graceful,
    /// By force: its API object is gone and the kubelet doesn't know the pod any more.
    Forced,
}

/// A pod that the kubelet was told of.
pub(super) struct PodRecord {
    pub(super) spec: PodSpec,
    pub(super) status: PodStatus,
    /// Order of arrival, which stands for the creation time.
    pub(super) sequence: u64,
    /// The sync loop has seen it.
    pub(super) arrived: bool,
    /// Whether its API object was deleted.
    pub(super) deletion: Deletion,
    /// All its containers have stopped for good.
    pub(super) terminated: bool,
    /// How its worker is told to stop; `None` while there is no worker.
    pub(super) worker: Option<watch::Sender<Option<Stop>>>,
}

impl PodRecord {
    pub(super) fn new(spec: PodSpec, sequence: u64) -> Self {
        Self {
            status: PodStatus::new(&spec),
            spec,
            sequence,
            arrived: false,
            deletion: Deletion::None,
            terminated: false,
            worker: None,
        }
    }

    /// What the kubelet calls active: only such pods keep their devices and are listed.
    pub(super) fn is_active(&self) -> bool {
        let ended = self.status.phase.is_terminal() || self.terminated;
        self.arrived && self.deletion != Deletion::Forced && !ended
    }
}

#[derive(Default)]
pub(super) struct State {
    pub(super) devices: Devices,
    pub(super) pods: BTreeMap<String, PodRecord>,
    /// Number of the kubelet process, once it has admitted its pods again.
    pub(super) serving: Option<u64>,
}

impl State {
    pub(super) fn active_pods(&self) -> BTreeSet<String> {
        let active = self.pods.iter().filter(|(_, record)| record.is_active());
        active.map(|(uid, _)| uid.clone()).collect()
    }

    /// `UpdateAllocatedDevices` of the kubelet.
    pub(super) fn free_inactive(&mut self) {
        let active = self.active_pods();
        self.devices.free_inactive(&active);
    }
}

/// The shared part.
pub(super) struct Node {
    pub(super) options: Options,
    pub(super) processes: Processes,
    /// Workers of pods; they outlive a kubelet process as containers do.
    pub(super) workers: TaskTracker,
    state: Mutex<State>,
    version: watch::Sender<u64>,
    violations: Mutex<Vec<Violation>>,
    subscribers: Mutex<Vec<mpsc::UnboundedSender<PodChange>>>,
    random: Mutex<fastrand::Rng>,
}

impl Node {
    pub(super) fn new(options: Options, processes: Processes) -> Self {
        let random = Mutex::new(fastrand::Rng::with_seed(options.seed));
        Self {
            options,
            processes,
            workers: TaskTracker::new(),
            state: Mutex::default(),
            version: watch::Sender::new(0),
            violations: Mutex::default(),
            subscribers: Mutex::default(),
            random,
        }
    }

    /// Reads the state.
    pub(super) fn read<R>(&self, f: impl FnOnce(&State) -> R) -> R {
        f(&lock(&self.state))
    }

    /// Changes the state and wakes those who wait for a change.
    pub(super) fn change<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let result = f(&mut lock(&self.state));
        self.version.send_modify(|version| *version += 1);
        result
    }

    /// Fires at each change of the state.
    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Changes a pod's status and tells subscribers if it differs from before.
    pub(super) fn change_status(&self, uid: &str, f: impl FnOnce(&mut PodStatus)) {
        let changed = self.change(|state| {
            let record = state.pods.get_mut(uid)?;
            let before = record.status.clone();
            f(&mut record.status);
            (record.status != before).then(|| PodChange {
                namespace: record.spec.namespace.clone(),
                name: record.spec.name.clone(),
                uid: uid.into(),
                status: record.status.clone(),
            })
        });
        if let Some(change) = changed {
            lock(&self.subscribers).retain(|subscriber| subscriber.send(change.clone()).is_ok());
        }
    }

    pub(super) fn subscribe(&self) -> mpsc::UnboundedReceiver<PodChange> {
        let (sender, receiver) = mpsc::unbounded_channel();
        lock(&self.subscribers).push(sender);
        receiver
    }

    /// Waits until `check` finds something in the state. The error is `what`, after `deadline`.
    pub(super) async fn wait<T>(
        &self,
        what: &str,
        deadline: Duration,
        mut check: impl FnMut(&State) -> Option<T>,
    ) -> Result<T, WaitError> {
        let mut changes = self.watch();
        let found = tokio::time::timeout(deadline, async {
            loop {
                if let Some(found) = self.read(&mut check) {
                    return found;
                }
                // The sender is a field of this very node.
                drop(changes.changed().await);
            }
        });
        found.await.map_err(|_| WaitError { what: what.into(), deadline })
    }

    /// Fails a pod that can't run here.
    pub(super) fn reject(&self, uid: &str, reason: &str, message: &str) {
        self.change_status(uid, |status| {
            status.phase = Phase::Failed;
            status.reason = Some(reason.into());
            status.message = Some(message.into());
        });
    }

    /// Notes a violation, once.
    pub(super) fn record(&self, violation: Violation) {
        let mut violations = lock(&self.violations);
        if !violations.contains(&violation) {
            tracing::error!(%violation, "the device plugin would have broken a kubelet");
            violations.push(violation);
        }
    }

    pub(super) fn violations(&self) -> Vec<Violation> {
        lock(&self.violations).clone()
    }

    /// Awaits a call to the plugin, for ever as the kubelet does, and notes it if it is slow or
    /// its message was too large.
    pub(super) async fn call<T>(
        &self,
        rpc: Rpc,
        resource: &str,
        call: impl Future<Output = Result<T, tonic::Status>>,
    ) -> Result<T, tonic::Status> {
        tokio::pin!(call);
        let limit = self.options.rpc_limit;
        let result = if let Ok(result) = tokio::time::timeout(limit, &mut call).await {
            result
        } else {
            self.record(Violation::SlowRpc { rpc, resource: resource.into(), limit });
            call.await
        };
        if let Err(status) = &result {
            self.check_size(rpc, resource, status);
        }
        result
    }

    /// Notes a violation if `status` says that a message was too large.
    pub(super) fn check_size(&self, rpc: Rpc, resource: &str, status: &tonic::Status) {
        let says_size = status.message().contains("length too large");
        if status.code() == tonic::Code::OutOfRange && says_size {
            self.record(Violation::MessageTooLarge { rpc, resource: resource.into() });
        }
    }

    /// The items in an order that the kubelet doesn't promise either.
    pub(super) fn shuffled<T>(&self, items: impl IntoIterator<Item = T>) -> Vec<T> {
        let mut items: Vec<T> = items.into_iter().collect();
        lock(&self.random).shuffle(&mut items);
        items
    }
}

/// Locks, also after a panic of another holder: a failing test should tell its own reason.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
