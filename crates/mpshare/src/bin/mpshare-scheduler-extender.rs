//! `mpshare-scheduler-extender`: decides for kube-scheduler which GPU has room.
//!
//! A program of its own in the same image: the roles of a node run on every node and are kept small,
//! and what a role never runs would still be mapped in each of them.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use mpshare_scheduler::{Listeners, Options, Outside};

#[path = "../cluster.rs"]
mod cluster;
#[path = "../listen.rs"]
mod listen;
#[path = "../options.rs"]
mod options;

use cluster::ClusterOptions;
use listen::listen_on;
use options::{LogOptions, run_until_signal};

/// Tell kube-scheduler which GPU has room, and bind pods to it.
#[derive(Debug, Parser)]
#[command(name = "mpshare-scheduler-extender", version, about)]
struct Args {
    #[command(flatten)]
    logs: LogOptions,
    #[command(flatten)]
    cluster: ClusterOptions,
    /// Where it listens. Whoever reaches this address can bind pods, so that it should stay the
    /// loopback that the extender shares with kube-scheduler.
    #[arg(long, env = "LISTEN", default_value = "127.0.0.1:39999")]
    listen: SocketAddr,
    /// Where else it answers /healthz, /readyz, /metrics and /version, and nothing by which pods can
    /// be bound. `[::]` is every address, also on machines with IPv4 only.
    #[arg(long)]
    status_listen: Option<SocketAddr>,
    /// Take the memory that processes without a share use (of `docker run`, of the node) off what
    /// their card has.
    #[arg(long)]
    subtract_outside: bool,
}

/// Exit codes: 0 done, 1 failed, 2 wrong usage.
fn main() -> ExitCode {
    let args = Args::parse();
    args.logs.init();
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A container that has died is started again in about a second, and a Binding takes a few
/// milliseconds.
const PREDECESSOR: Duration = Duration::from_secs(1);

/// Answers until SIGTERM or SIGINT.
fn run(args: Args) -> Result<()> {
    run_until_signal(|shutdown| async move {
        let client = args.cluster.client().await?;
        if !args.listen.ip().is_loopback() {
            tracing::warn!(
                listen = %args.listen,
                "whoever reaches this address can bind pods; hint: listen on 127.0.0.1"
            );
        }
        let calls = listen_on(args.listen).await?;
        let status = match args.status_listen {
            Some(address) => Some(listen_on(address).await?),
            None => None,
        };
        let outside = if args.subtract_outside { Outside::Subtracted } else { Outside::Ignored };
        let options = Options { outside, predecessor: PREDECESSOR };
        mpshare_scheduler::run(client, Listeners { calls, status }, options, shutdown)
            .await
            .context("the scheduler extender can't work")
    })
}
