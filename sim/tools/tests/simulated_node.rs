//! The driver libraries and the user programs together, as processes on a simulated node.
//!
//! The libraries are taken from the build directory: run
//! `cargo build -p mpshare-sim-nvml -p mpshare-sim-cuda -p mpshare-sim-mps` first.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "simulated_node/mps.rs"]
mod mps;
#[path = "simulated_node/node.rs"]
mod node;
#[path = "simulated_node/nvml.rs"]
mod nvml;
#[path = "simulated_node/running.rs"]
mod running;
#[path = "simulated_node/sample.rs"]
mod sample;
#[path = "simulated_node/shared_card.rs"]
mod shared_card;
#[path = "simulated_node/smi.rs"]
mod smi;
#[path = "simulated_node/symbols.rs"]
mod symbols;
