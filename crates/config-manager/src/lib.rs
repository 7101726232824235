//! The config-manager role: node labels and a `ConfigMap` -> `config.yaml`, and what became of it
//! -> the node condition `MPSShareReady`, the node annotation `mpshare.io/gpus` and Events on the node
//! and on pods. It also tells the device plugin what the API says of the node's pods, and the API where these
//! really are.
//!
//! Level-triggered: whatever changes, the whole decision is made again from what is known now, so
//! that no lost signal can leave a node on an old config (facts/nvidia-device-plugin.md 4). The
//! Kubernetes API may be away for any time; the node then goes on with the config that it has.
//!
//! | module | idea |
//! |---|---|
//! | [`choice`] | labels x configs -> a config, or a reason (pure) |
//! | `view` | all that is known now, and the decision about it (pure) |
//! | `drain` | the annotation by which cards are emptied (pure) |
//! | `condition` | decision x status -> the node condition (pure) |
//! | `announcement` | what changed since last time -> Events (pure) |
//! | `pod_events` | what of it concerns single pods -> Events on them (pure) |
//! | `inventory` | config x status x live shares -> the node annotations (pure) |
//! | [`handoff`] | pods x who holds what -> their annotations (pure) |
//! | `allowance` | how often something may be said (pure) |
//! | `pods` | the node's pods, and which of them ask for units |
//! | `usage` | how much of each card is in use, as often as it is published (pure) |
//! | `node_status` | whether another system manages the node's cards, and what of ours is there |
//! | `published` | condition and annotations as the API has them |
//! | `sources` | what is known now, as one stream of facts |
//! | `publish` | condition, annotations of node and pods, and Events -> API |
//! | `reconcile` | the loop |

mod allowance;
mod announcement;
mod backoff;
pub mod choice;
mod condition;
mod drain;
pub mod handoff;
mod inventory;
mod node_status;
mod options;
mod pod_events;
mod pods;
mod publish;
mod published;
mod reconcile;
mod sources;
#[cfg(test)]
mod testing;
mod usage;
mod view;

pub use choice::Fallback;
pub use options::{ConfigSource, Options};
pub use reconcile::{RunError, run};
