//! What the control program and the server do, fact by fact.
//!
//! Each test names the section of `facts/mps.md` that it checks. With `MPSHARE_REAL_MPS_CONTROL`
//! set to the path of a real control program (and `MPSHARE_REAL_MPS_DRIVER` to its driver's
//! version), the tests that need nothing of the simulator run against that one.
#![expect(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    reason = "a test may fail, and says why it can't run"
)]

mod clients;
mod commands;
mod death;
mod faults;
mod node;
mod privileges;
mod quit;
mod servers;
mod start;
mod transcripts;
mod users;
