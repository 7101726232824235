//! The whole node: the product's real processes on simulated cards, kubelet and API server.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod attack;
mod chaos;
mod cleanup;
mod containment;
mod drain;
mod drivers;
mod ending;
mod farewell;
mod faults;
mod handoff;
mod health;
mod hostile;
mod memory;
mod on_host;
mod preflight;
mod reload;
mod scene;
mod scheduling;
mod supervisor;
