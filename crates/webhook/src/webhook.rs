//! What all reviews share: the fleet, the policy, the certificate, the metrics.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mpshare_core::admission::{Fleet, Policy};
use tokio::sync::Semaphore;

use crate::audit::Reporter;
use crate::http::AT_A_TIME;
use crate::metrics::Metrics;
use crate::review::Rules;
use crate::serving::Serving;

/// The webhook's state.
pub(crate) struct Webhook {
    pub(crate) policy: Policy,
    pub(crate) own_accounts: BTreeSet<String>,
    pub(crate) serving: Arc<Serving>,
    pub(crate) metrics: Metrics,
    pub(crate) reporter: Reporter,
    pub(crate) nodes_listed: AtomicBool,
    /// For the reviews that are taken at a time.
    pub(crate) places: Semaphore,
    is_ending: AtomicBool,
    fleet: Mutex<Fleet>,
}

impl Webhook {
    pub(crate) fn new(policy: Policy, own_accounts: BTreeSet<String>, reporter: Reporter) -> Self {
        Self {
            policy,
            own_accounts,
            serving: Arc::default(),
            metrics: Metrics::default(),
            reporter,
            nodes_listed: AtomicBool::new(false),
            places: Semaphore::new(AT_A_TIME),
            is_ending: AtomicBool::new(false),
            fleet: Mutex::default(),
        }
    }

    /// Decides by what is in force now.
    pub(crate) fn with_rules<T>(&self, decide: impl FnOnce(Rules<'_>) -> T) -> T {
        let fleet = self.fleet();
        decide(Rules { policy: &self.policy, fleet: &fleet, own_accounts: &self.own_accounts })
    }

    /// The fleet, for as long as one decision takes.
    pub(crate) fn fleet(&self) -> MutexGuard<'_, Fleet> {
        self.fleet.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on it isn't ready, and tells those who call to call another replica next time.
    pub(crate) fn end(&self) {
        self.is_ending.store(true, Ordering::Release);
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    /// What is missing before it can answer.
    pub(crate) fn missing(&self) -> Option<&'static str> {
        if self.is_ending() {
            Some("it is ending")
        } else if !self.serving.is_set() {
            Some("there is no certificate yet")
        } else if !self.nodes_listed.load(Ordering::Acquire) {
            Some("nodes aren't listed yet")
        } else {
            None
        }
    }
}
