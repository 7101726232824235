//! The adapter over the simulated driver library.
//!
//! The library finds its node through a variable of the process, so each test runs again in a
//! process of its own, see [`node::on_node`]. It is taken from the build directory: run
//! `cargo build -p mpshare-sim-nvml` first.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "simulated/events.rs"]
mod events;
#[path = "simulated/inventory.rs"]
mod inventory;
#[path = "simulated/node.rs"]
mod node;
