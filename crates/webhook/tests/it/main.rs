//! The webhook over HTTPS, against an API server in memory.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says by a panic what went wrong"
)]

mod audit;
mod bodies;
mod certificates;
mod client;
mod end;
mod property;
mod reviews;
mod rotation;
mod scene;
