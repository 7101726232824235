//! The control daemon's driver against the simulated MPS programs.
//!
//! The programs are taken from the build directory: run `cargo build -p mpshare-sim-mps` first.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "simulator/clients.rs"]
mod clients;
#[path = "simulator/ending.rs"]
mod ending;
#[path = "simulator/node.rs"]
mod node;
#[path = "simulator/starting.rs"]
mod starting;
#[path = "simulator/talking.rs"]
mod talking;
