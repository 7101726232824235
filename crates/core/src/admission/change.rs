//! What of a pod is written anew: as little as makes the documents' pods work.
//!
//! The same pod gives the same edits, and a pod with its edits applied gives none.

use super::environment::{
    MEMORY_LIMIT, NVIDIA_DEVICES, PIPE_DIRECTORY, THREAD_PERCENTAGE, is_drivers_form, memory_limit,
    pipe_directory, read_memory_limit, read_percent,
};
use super::fleet::Candidates;
use super::subject::{Amount, Container, Place, Subject, Value};
use super::{Fleet, Policy};
use crate::{Reason, ThreadPercent};

/// The name that the API server gives a pod's scheduler where its spec has none.
const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// What becomes of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// What is written.
    pub edits: Vec<Edit>,
    /// What its author should know of that.
    pub notes: Vec<Reason>,
}

/// One change of a spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// `spec.schedulerName`.
    SetScheduler(String),
    /// The value of the variable at this position.
    SetEnv {
        /// Of which container.
        at: Place,
        /// The position in its list of variables.
        index: usize,
        /// The variable that is there.
        name: String,
        /// Its new value.
        value: String,
    },
    /// A variable behind the others.
    AddEnv {
        /// Of which container.
        at: Place,
        /// Name.
        name: String,
        /// Value.
        value: String,
    },
}

/// What is to be written into a pod that somebody creates.
pub fn change(subject: &Subject, fleet: &Fleet, policy: &Policy) -> Changes {
    let mut changes = Changes::default();
    changes.edits.extend(scheduler(subject, policy));
    for container in &subject.containers {
        // A container that asks for two resources can't run; whichever is looked at is the wrong one.
        let Some(asked) = container.asked.first() else { continue };
        let cards = fleet.candidates(subject, &asked.resource);
        let is_share = cards.may_share(asked.units);
        let mut share = ShareOf { container, asked, cards, changes: &mut changes };
        share.limit_memory();
        if is_share && policy.cap_percent {
            share.limit_threads();
        }
        // Variables of a `ConfigMap` or a Secret would take the place of the device plugin's, those
        // of the spec take theirs (facts/kubernetes.md 2).
        if is_share && container.has_env_from {
            share.settle(policy);
        }
    }
    changes
}

fn scheduler(subject: &Subject, policy: &Policy) -> Option<Edit> {
    let is_open = subject.scheduler.as_deref().is_none_or(|name| name == DEFAULT_SCHEDULER);
    let mut asked = subject.containers.iter().flat_map(|container| &container.asked);
    let is_ours = is_open && subject.node.is_none() && asked.any(|it| it.resource.is_memory());
    policy.scheduler_name.clone().filter(|_| is_ours).map(Edit::SetScheduler)
}

/// A container with a share of a card.
struct ShareOf<'a> {
    container: &'a Container,
    asked: &'a Amount,
    cards: Candidates<'a>,
    changes: &'a mut Changes,
}

impl ShareOf<'_> {
    /// A limit in the driver's form, at most the share; what can't be read would free the process of
    /// any limit, so that the share is written over it.
    fn limit_memory(&mut self) {
        let Some((index, Value::Text(text))) = self.container.variable(MEMORY_LIMIT) else {
            return;
        };
        let share = self.cards.least_memory(self.asked.units);
        let container = self.container.name.clone();
        let (limit, note) = match (read_memory_limit(text), share) {
            (Some(asked), Some(share)) if asked > share => {
                (share, Some(Reason::MemoryLimitAboveShare { container, asked, share }))
            }
            (Some(_), _) if is_drivers_form(text) => return,
            (Some(asked), _) => (asked, None),
            (None, Some(share)) => {
                let text = text.clone();
                (share, Some(Reason::MemoryLimitUnreadable { container, text }))
            }
            // The finding is `judge`'s.
            (None, None) => return,
        };
        self.changes.notes.extend(note);
        self.set(index, MEMORY_LIMIT, text, memory_limit(limit));
    }

    fn limit_threads(&mut self) {
        let Some((index, Value::Text(text))) = self.container.variable(THREAD_PERCENTAGE) else {
            return;
        };
        let Some(share) = self.cards.least_percent(self.asked.units) else { return };
        let Some(asked) = read_percent(text).filter(|asked| *asked > share.tenths()) else {
            return;
        };
        self.changes.notes.push(Reason::PercentAboveShare {
            container: self.container.name.clone(),
            asked: ThreadPercent::from_tenths(asked).unwrap_or(ThreadPercent::FULL),
            share,
        });
        self.set(index, THREAD_PERCENTAGE, text, share.to_string());
    }

    /// Writes what makes the container a client of its card's daemon, with its share.
    fn settle(&mut self, policy: &Policy) {
        self.add(PIPE_DIRECTORY, pipe_directory(&self.asked.resource));
        if let Some(share) = self.cards.least_memory(self.asked.units) {
            let is_less = self.cards.same_memory(self.asked.units).is_none();
            if is_less && self.container.variable(MEMORY_LIMIT).is_none() {
                let container = self.container.name.clone();
                self.changes.notes.push(Reason::SmallestShareWritten { container, share });
            }
            self.add(MEMORY_LIMIT, memory_limit(share));
        }
        if let Some(percent) =
            self.cards.least_percent(self.asked.units).filter(|_| policy.cap_percent)
        {
            self.add(THREAD_PERCENTAGE, percent.to_string());
        }
        if let Some(devices) = &policy.visible_devices {
            self.add(NVIDIA_DEVICES, devices.clone());
        }
    }

    fn set(&mut self, index: usize, name: &str, before: &str, value: String) {
        if before != value {
            let at = self.container.place;
            self.changes.edits.push(Edit::SetEnv { at, index, name: name.to_owned(), value });
        }
    }

    fn add(&mut self, name: &str, value: String) {
        if self.container.variable(name).is_none() {
            let at = self.container.place;
            self.changes.edits.push(Edit::AddEnv { at, name: name.to_owned(), value });
        }
    }
}
