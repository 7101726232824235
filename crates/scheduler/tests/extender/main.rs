//! The extender over HTTP, against an API server in memory.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says by a panic what went wrong"
)]

mod bind;
mod filter;
mod inspect;
mod scene;
mod schedules;
mod status;
