//! `mpshare-webhook`: answers the API server's questions about pods before they are stored.
//!
//! A program of its own in the same image: the roles of a node run on every node and are kept small,
//! and what a role never runs would still be mapped in each of them. This one brings a TLS server
//! and what makes certificates.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Parser, ValueEnum};
use mpshare_core::admission::{Policy, Privileged};
use mpshare_webhook::{CertificateSource, Listeners, Lives, Options, SelfMade};

#[path = "../cluster.rs"]
mod cluster;
#[path = "../listen.rs"]
mod listen;
#[path = "../options.rs"]
mod options;

use cluster::ClusterOptions;
use listen::listen_on;
use options::{LogOptions, run_until_signal};

/// Answer admission reviews of pods: make them mean what they say, and refuse what can't work.
#[derive(Debug, Parser)]
#[command(name = "mpshare-webhook", version, about)]
struct Args {
    #[command(flatten)]
    logs: LogOptions,
    #[command(flatten)]
    cluster: ClusterOptions,
    /// Where it answers API servers, with TLS. `[::]` is every address, also on machines with IPv4
    /// only.
    #[arg(long, env = "LISTEN", default_value = "[::]:8443")]
    listen: SocketAddr,
    /// Where it answers /healthz, /readyz, /metrics and /version.
    #[arg(long, env = "STATUS_LISTEN", default_value = "[::]:8080")]
    status_listen: SocketAddr,
    /// Seconds that it goes on answering after a signal, while it isn't ready any more.
    #[arg(long, env = "DRAIN_SECONDS", default_value_t = 5)]
    drain_seconds: u64,
    /// A user that may set our annotations, such as
    /// `system:serviceaccount:kube-system:mpshare-scheduler`; may be given several times.
    #[arg(long = "own-account", env = "OWN_ACCOUNTS", value_delimiter = ',')]
    own_accounts: Vec<String>,
    #[command(flatten)]
    policy: PolicyOptions,
    #[command(flatten)]
    certificates: CertificateOptions,
}

/// What the cluster's owner wants of pods.
#[derive(Debug, clap::Args)]
struct PolicyOptions {
    /// The scheduler that pods with memory units get; none where the default one asks our extender.
    #[arg(long, env = "SCHEDULER_NAME")]
    scheduler_name: Option<String>,
    /// Lower a container's thread percentage to that of its share.
    #[arg(long, env = "CAP_PERCENT")]
    cap_percent: bool,
    /// Which privileged containers are findings.
    #[arg(long, env = "PRIVILEGED", value_enum, default_value_t)]
    privileged: PrivilegedOption,
    /// Where the driver is on nodes, where that isn't `/`; pods that mount it are findings.
    #[arg(long, env = "DRIVER_ROOT")]
    driver_root: Option<String>,
    /// The MPS root on nodes; pods that mount it are findings.
    #[arg(long, env = "MPS_ROOT", default_value = "/run/nvidia/mps")]
    mps_root: String,
    /// What `NVIDIA_VISIBLE_DEVICES` says in containers with `envFrom`: `void` where cards are named
    /// by CDI, `/var/run/nvidia-container-devices` where they are named by mounts. Leave it out where
    /// the device plugin names them by that variable.
    #[arg(long, env = "VISIBLE_DEVICES")]
    visible_devices: Option<String>,
}

/// [`Privileged`] on the command line.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum PrivilegedOption {
    /// None.
    Allowed,
    /// Those of pods that ask for units.
    #[default]
    WithUnits,
    /// All.
    All,
}

/// Where the certificate comes from.
#[derive(Debug, clap::Args)]
struct CertificateOptions {
    /// A directory with `tls.crt` and `tls.key`, as cert-manager makes them; without it the webhook
    /// makes its own.
    #[arg(long, env = "CERTIFICATE_DIR")]
    certificate_dir: Option<PathBuf>,
    /// The Secret of its own CA and certificate.
    #[arg(long, env = "CERTIFICATE_SECRET", default_value = "mpshare-webhook-certificates")]
    certificate_secret: String,
    /// The namespace of the Secret and of the Service.
    #[arg(long, env = "NAMESPACE", default_value = "kube-system")]
    namespace: String,
    /// The Service by which API servers call.
    #[arg(long, env = "SERVICE", default_value = "mpshare-webhook")]
    service: String,
    /// The name of both the mutating and the validating webhook configuration.
    #[arg(long, env = "WEBHOOK_CONFIGURATION", default_value = "mpshare")]
    webhook_configuration: String,
    /// Seconds that a CA is valid; it is replaced after two thirds of them.
    #[arg(long, env = "CA_SECONDS", default_value_t = Lives::default().authority.as_secs())]
    ca_seconds: u64,
    /// Seconds that a certificate is valid; it is replaced after two thirds of them.
    #[arg(long, env = "CERTIFICATE_SECONDS", default_value_t = Lives::default().serving.as_secs())]
    certificate_seconds: u64,
    /// Seconds that API servers may take to see a changed CA bundle.
    #[arg(long, env = "SETTLE_SECONDS", default_value_t = 60)]
    settle_seconds: u64,
    /// Seconds between two looks at the Secret and the configurations, or at the directory.
    #[arg(long, env = "LOOK_SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    look_seconds: u64,
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

/// Answers until SIGTERM or SIGINT.
fn run(args: Args) -> Result<()> {
    run_until_signal(|shutdown| async move {
        let client = args.cluster.client().await?;
        let listeners = Listeners {
            reviews: listen_on(args.listen).await?,
            status: listen_on(args.status_listen).await?,
        };
        let options = Options {
            policy: args.policy.policy(),
            own_accounts: args.own_accounts.into_iter().collect(),
            certificates: args.certificates.source(),
            drain: Duration::from_secs(args.drain_seconds),
        };
        mpshare_webhook::run(client, listeners, options, shutdown)
            .await
            .context("the webhook can't work")
    })
}

impl PolicyOptions {
    fn policy(self) -> Policy {
        let present = |text: Option<String>| text.filter(|text| !text.is_empty());
        Policy {
            scheduler_name: present(self.scheduler_name),
            cap_percent: self.cap_percent,
            privileged: match self.privileged {
                PrivilegedOption::Allowed => Privileged::Allowed,
                PrivilegedOption::WithUnits => Privileged::WithUnits,
                PrivilegedOption::All => Privileged::All,
            },
            own_paths: present(self.driver_root).into_iter().chain([self.mps_root]).collect(),
            visible_devices: present(self.visible_devices),
        }
    }
}

impl CertificateOptions {
    fn source(self) -> CertificateSource {
        let look_every = Duration::from_secs(self.look_seconds);
        if let Some(directory) = self.certificate_dir {
            return CertificateSource::Mounted { directory, look_every };
        }
        CertificateSource::SelfMade(SelfMade {
            namespace: self.namespace,
            secret: self.certificate_secret,
            service: self.service,
            configuration: self.webhook_configuration,
            lives: Lives {
                authority: Duration::from_secs(self.ca_seconds),
                serving: Duration::from_secs(self.certificate_seconds),
            },
            settle: Duration::from_secs(self.settle_seconds),
            look_every,
        })
    }
}
