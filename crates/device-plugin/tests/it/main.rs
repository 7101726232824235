//! The role against a fake kubelet, with a stand-in for the supervisor that follows config and
//! allocations by the same plan.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets a surprise should fail there and then"
)]

mod gate;
mod lock;
mod memory;
mod records;
mod registration;
mod reload;
mod setup;
mod shares;
mod supervisor;
