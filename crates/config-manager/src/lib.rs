//! The config-manager role: node labels and a `ConfigMap` -> `config.yaml`, and what became of it
//! -> the node condition `MPSShareReady` and Events on the node.
//!
//! Level-triggered: whatever changes, the whole decision is made again from what is known now, so
//! that no lost signal can leave a node on an old config (facts/nvidia-device-plugin.md 4). The
//! Kubernetes API may be away for any time; the node then goes on with the config that it has.
//!
//! | module | idea |
//! |---|---|
//! | [`choice`] | labels x configs -> a config, or a reason (pure) |
//! | `view` | all that is known now, and the decision about it (pure) |
//! | `condition` | decision x status -> the node condition (pure) |
//! | `announcement` | what changed since last time -> Events (pure) |
//! | `node_status` | whether another system manages the node's cards, and what our condition is there |
//! | `published` | the condition as the API has it |
//! | `sources` | what is known now, as one stream of facts |
//! | `publish` | condition and Events -> API |
//! | `reconcile` | the loop |

mod announcement;
mod backoff;
pub mod choice;
mod condition;
mod node_status;
mod options;
mod publish;
mod published;
mod reconcile;
mod sources;
mod view;

pub use choice::Fallback;
pub use options::{ConfigSource, Options};
pub use reconcile::{RunError, run};
