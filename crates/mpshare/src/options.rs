//! Options that several subcommands share.

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use mpshare_telemetry::{LogFormat, init_logs, until_signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

/// How to log.
#[derive(Debug, Args)]
pub(crate) struct LogOptions {
    /// What to log: a level, or `tracing` directives such as `info,mpshare_mps=debug`.
    #[arg(long, global = true, env = "MPSHARE_LOG", default_value = "info")]
    log: String,
    /// How log lines look.
    #[arg(long, global = true, env = "MPSHARE_LOG_FORMAT", default_value = "text")]
    log_format: Format,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
}

impl LogOptions {
    /// Sets up the process's logs.
    pub(crate) fn init(&self) {
        let format = match self.log_format {
            Format::Text => LogFormat::Text,
            Format::Json => LogFormat::Json,
        };
        init_logs(&self.log, format);
    }
}

/// Runs an asynchronous role on one thread; a signal cancels the token that it gets.
pub(crate) fn run_until_signal<F>(role: impl FnOnce(CancellationToken) -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("can't start the runtime")?;
    runtime.block_on(async {
        let shutdown = CancellationToken::new();
        let role = role(shutdown.clone());
        tokio::pin!(role);
        tokio::select! {
            result = &mut role => result,
            signal = until_signal() => {
                info!(signal = signal?, "ending");
                shutdown.cancel();
                role.await
            }
        }
    })
}
