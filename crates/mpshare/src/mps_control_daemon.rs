//! `mpshare mps-control-daemon`: the supervisor on the real driver.

use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use mpshare_nvml::{HealthTracker, XidPolicy};
use mpshare_supervisor::{Event, Options};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::info;

use crate::containment::ContainmentOptions;
use crate::driver::DriverOptions;
use crate::mps_root::RootOptions;
use crate::server_care::ServerOptions;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    root: RootOptions,
    #[command(flatten)]
    driver: DriverOptions,
    /// Xids that don't make a GPU unhealthy: a comma list, `all` or `xids`.
    #[arg(long, env = "DP_DISABLE_HEALTHCHECKS", default_value = "")]
    disable_health_checks: String,
    /// Xids that make a GPU unhealthy whatever is disabled.
    #[arg(long, env = "DP_ENABLE_HEALTHCHECKS", default_value = "")]
    enable_health_checks: String,
    /// Seconds without a critical Xid until a GPU's units come back.
    #[arg(long, default_value_t = HealthTracker::QUIET.as_secs())]
    recovery_seconds: u64,
    #[command(flatten)]
    containment: ContainmentOptions,
    #[command(flatten)]
    servers: ServerOptions,
}

/// Supervises until SIGTERM or SIGINT.
pub(crate) fn run(args: &Args) -> Result<()> {
    let (events, received) = mpsc::channel();
    let stop = events.clone();
    let options = Options {
        root: args.root.root(),
        busy_interval: Duration::from_secs(1),
        idle_interval: Duration::from_secs(10),
        recovery: Duration::from_secs(args.recovery_seconds),
        containment: args.containment.rules(),
        canary: args.servers.canary(),
        start_deadline: args.servers.start_deadline(),
        fault_grace: args.servers.fault_grace(),
    };
    let policy = XidPolicy::new(&args.disable_health_checks, &args.enable_health_checks);
    for word in policy.unreadable() {
        tracing::warn!(word, "no Xid in the list of health checks, passed over");
    }
    let ports = args.driver.ports();
    stop_on_signal(stop)?;
    mpshare_supervisor::run(options, ports, policy, (events, &received))
        .context("the supervisor can't work")
}

/// The supervisor blocks on its channel; a thread of its own turns the signal into an event.
fn stop_on_signal(stop: Sender<Event>) -> Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT]).context("can't wait for signals")?;
    let wait = move || {
        if let Some(signal) = signals.forever().next() {
            info!(signal, "ending");
            // Nobody listens any more when the supervisor has just ended by itself.
            drop(stop.send(Event::Stop));
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(wait)?;
    Ok(())
}
