//! `mpshare scheduler-extender`: decides for kube-scheduler which GPU has room.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};

use crate::cluster::ClusterOptions;
use crate::options::run_until_signal;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    cluster: ClusterOptions,
    /// Where it listens. Whoever reaches this address can bind pods, so that it should stay the
    /// loopback that the extender shares with kube-scheduler.
    #[arg(long, env = "LISTEN", default_value = "127.0.0.1:39999")]
    listen: SocketAddr,
}

/// Answers until SIGTERM or SIGINT.
pub(crate) fn run(args: Args) -> Result<()> {
    run_until_signal(|shutdown| async move {
        let client = args.cluster.client().await?;
        if !args.listen.ip().is_loopback() {
            tracing::warn!(
                listen = %args.listen,
                "whoever reaches this address can bind pods; hint: listen on 127.0.0.1"
            );
        }
        let listener = tokio::net::TcpListener::bind(args.listen)
            .await
            .with_context(|| format!("can't listen on `{}`", args.listen))?;
        mpshare_scheduler::run(client, listener, shutdown)
            .await
            .context("the scheduler extender can't work")
    })
}
