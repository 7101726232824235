//! The `mps-control-daemon` role: the supervisor of a node's MPS control daemons.
//!
//! It plans with [`mpshare_core::plan()`] on the config and the records of live shares, gives each
//! card a worker thread that takes it there one step at a time, and reports in `status.json` what
//! was verified. It is the only part that uses NVML and the only privileged one. Its own end
//! changes nothing on the node: daemons and their clients stay, and the next supervisor adopts
//! them.

use std::sync::mpsc::{Receiver, Sender};

use mpshare_nvml::XidPolicy;
use tracing::info;

mod card;
mod cards;
pub mod cleanup;
mod clients;
mod containment;
mod death;
mod drain;
mod event;
mod farewell;
mod faults;
mod former;
mod health;
mod incidents;
mod inputs;
mod journal;
mod node;
mod obstacles;
mod options;
mod overheard;
pub mod preflight;
mod printable;
mod servers;
mod silence;
mod sole;
mod start_limits;
mod steps;
#[cfg(test)]
mod testing;
mod waiting;
mod watch;
mod watchdog;
mod worker;

pub use event::Event;
pub use node::SupervisorError;
pub use options::{
    CanaryRules, ContainmentRules, DaemonDriver, Options, Outsiders, OverShare, Ports,
};

/// Supervises until [`Event::Stop`] arrives.
///
/// `events` is the channel that `received` ends; the caller keeps a clone to send the stop.
pub fn run(
    options: Options,
    ports: Ports,
    policy: XidPolicy,
    (events, received): (Sender<Event>, &Receiver<Event>),
) -> Result<(), SupervisorError> {
    let Some(_lock) = sole::lock(&options, &events, received)? else {
        return Ok(());
    };
    watch::watch_files(&options.root, events.clone()).map_err(SupervisorError::Thread)?;
    health::watch_health(&ports, events.clone()).map_err(SupervisorError::Thread)?;
    let mut node = node::Node::new(options, ports, policy, events)?;
    let result = node.run(received);
    info!("supervisor ends, MPS daemons and their clients stay");
    result
}
