//! What all calls share: the ledger, the way to the API server, the metrics.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::Client;
use mpshare_core::ledger::{Ledger, Outside};

use crate::asked::Asked;
use crate::metrics::Metrics;

/// The extender's state.
pub(crate) struct Extender {
    pub(crate) client: Client,
    pub(crate) metrics: Metrics,
    pub(crate) asked: Asked,
    pub(crate) nodes_listed: AtomicBool,
    pub(crate) pods_listed: AtomicBool,
    ledger: Mutex<Ledger>,
    started: Instant,
}

impl Extender {
    pub(crate) fn new(client: Client, outside: Outside) -> Self {
        Self {
            client,
            metrics: Metrics::default(),
            asked: Asked::default(),
            nodes_listed: AtomicBool::new(false),
            pods_listed: AtomicBool::new(false),
            ledger: Mutex::new(Ledger::new(outside)),
            started: Instant::now(),
        }
    }

    /// The ledger, for as long as one decision takes; never held over a call of the API.
    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether all nodes and pods are known. Before that a card that looks free may not be.
    pub(crate) fn is_ready(&self) -> bool {
        self.nodes_listed.load(Ordering::Acquire) && self.pods_listed.load(Ordering::Acquire)
    }
}
