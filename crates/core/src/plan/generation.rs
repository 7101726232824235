//! The name of what a configuration wants of a card.

use std::fmt;

use super::target::{SharedTarget, Target};
use crate::ResourceName;

/// Two processes agree on a card's plan exactly when they agree on this text.
///
/// It spells the plan out instead of hashing it: equality is exact, and a person who compares a
/// log line with `status.json` sees what differs. Example: `mps/nvidia.com/gpu/2x7680M@50.0`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(String);

impl Generation {
    pub(super) fn of(target: &Target) -> Self {
        Self(match target {
            Target::Shared(SharedTarget { resource, replicas, unit, .. }) => {
                format!("mps/{resource}/{replicas}x{}M@{}", unit.memory.mib(), unit.percent)
            }
            Target::Exclusive { resource } => format!("exclusive/{resource}"),
            Target::Refused(reason) => format!("refused/{}", reason.code()),
        })
    }

    /// The name of the same wish for a card that is to be emptied.
    pub(super) fn drained(&self) -> Self {
        Self(format!("drained/{self}"))
    }

    /// The name of the same wish while the card is still hosted for shares of another resource, or of
    /// another way of sharing. Who has heard already that the last of these has ended mustn't take a
    /// report that was made before for one on the daemon that takes its place.
    pub(super) fn after(&self, resource: &ResourceName) -> Self {
        Self(format!("{self} after {resource}"))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
