//! Faults on demand: what a test does to the API server while the product uses it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::error::ApiError;

/// Which requests a fault hits; every part that is left open hits all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Matching {
    verb: Option<String>,
    resource: Option<String>,
    subresource: Option<String>,
    name: Option<String>,
}

impl Matching {
    /// All requests.
    pub fn any() -> Self {
        Self::default()
    }

    /// Requests with this verb: `get list watch create update patch delete deletecollection`.
    #[must_use]
    pub fn verb(mut self, verb: &str) -> Self {
        self.verb = Some(verb.to_owned());
        self
    }

    /// Requests for this resource by its plural name, such as `pods`.
    #[must_use]
    pub fn resource(mut self, plural: &str) -> Self {
        self.resource = Some(plural.to_owned());
        self
    }

    /// Requests for this subresource, such as `binding`.
    #[must_use]
    pub fn subresource(mut self, subresource: &str) -> Self {
        self.subresource = Some(subresource.to_owned());
        self
    }

    /// Requests for the object of this name.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    fn hits(&self, call: &Call<'_>) -> bool {
        let open_or = |wanted: &Option<String>, actual: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == actual)
        };
        open_or(&self.verb, call.verb)
            && open_or(&self.resource, call.resource)
            && open_or(&self.subresource, call.subresource)
            && open_or(&self.name, call.name)
    }
}

/// What happens to a request that a fault hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It is refused with this HTTP code and has no effect.
    Fail(u16),
    /// It is refused with 429 and a `Retry-After` of so many seconds.
    Throttle(u32),
    /// It is answered after this time.
    Delay(Duration),
    /// It takes effect, but the client gets this HTTP code instead of the answer.
    LoseReply(u16),
}

/// How often a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// The next so many requests that match.
    Next(usize),
    /// Every request that matches, until the faults are cleared.
    Always,
}

/// The faults in force.
#[derive(Debug)]
pub struct Faults {
    rules: Mutex<Vec<Rule>>,
    /// Lists are answered as of this version.
    frozen: Mutex<Option<u64>>,
    watch_copies: AtomicUsize,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            rules: Mutex::default(),
            frozen: Mutex::default(),
            watch_copies: AtomicUsize::new(1),
        }
    }
}

#[derive(Debug)]
struct Rule {
    matching: Matching,
    effect: Effect,
    times: Times,
}

/// What the faults look at in a request.
pub(crate) struct Call<'a> {
    pub(crate) verb: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) name: &'a str,
}

/// What is to be done about one request.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) delay: Duration,
    pub(crate) refusal: Option<ApiError>,
    pub(crate) lost_reply: Option<ApiError>,
}

impl Faults {
    /// Adds a fault. Several may hit one request: delays add up, the first refusal wins.
    pub fn inject(&self, times: Times, matching: Matching, effect: Effect) {
        lock(&self.rules).push(Rule { matching, effect, times });
    }

    /// The next `count` requests of any kind fail with `code`.
    pub fn fail_next(&self, count: usize, code: u16) {
        self.inject(Times::Next(count), Matching::any(), Effect::Fail(code));
    }

    /// The next `count` requests get 429 with `Retry-After`.
    pub fn throttle_next(&self, count: usize, retry_after_seconds: u32) {
        self.inject(Times::Next(count), Matching::any(), Effect::Throttle(retry_after_seconds));
    }

    /// Every request takes this much longer.
    pub fn delay_all(&self, delay: Duration) {
        self.inject(Times::Always, Matching::any(), Effect::Delay(delay));
    }

    /// Every watch event is sent so many times; 1 is the normal state.
    pub fn copies_of_watch_events(&self, copies: usize) {
        self.watch_copies.store(copies, Ordering::Relaxed);
    }

    /// Ends all faults.
    pub fn clear(&self) {
        lock(&self.rules).clear();
        *lock(&self.frozen) = None;
        self.copies_of_watch_events(1);
    }

    pub(crate) fn freeze_lists(&self, revision: u64) {
        *lock(&self.frozen) = Some(revision);
    }

    pub(crate) fn frozen_at(&self) -> Option<u64> {
        *lock(&self.frozen)
    }

    pub(crate) fn watch_copies(&self) -> usize {
        self.watch_copies.load(Ordering::Relaxed)
    }

    /// Decides one request and counts it against the faults that hit it.
    pub(crate) fn strike(&self, call: &Call<'_>) -> Outcome {
        let mut outcome = Outcome::default();
        let mut rules = lock(&self.rules);
        for rule in rules.iter_mut().filter(|rule| rule.matching.hits(call)) {
            let refusal = match rule.effect {
                Effect::Delay(delay) => {
                    outcome.delay += delay;
                    None
                }
                Effect::LoseReply(code) => {
                    outcome.lost_reply = Some(ApiError::from_code(code));
                    None
                }
                Effect::Fail(code) => Some(ApiError::from_code(code)),
                Effect::Throttle(seconds) => Some(ApiError::throttled(seconds)),
            };
            if let Times::Next(left) = &mut rule.times {
                *left = left.saturating_sub(1);
            }
            if refusal.is_some() {
                outcome.refusal = refusal;
                break;
            }
        }
        rules.retain(|rule| rule.times != Times::Next(0));
        outcome
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
