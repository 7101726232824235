//! `mpshare uninstall`: takes mpshare off all nodes, after its pods were deleted.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use mpshare_api::MpsRoot;
use mpshare_uninstall::{CleanupPod, Options, Rights};

use crate::cluster::ClusterOptions;
use crate::options::run_until_signal;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    cluster: ClusterOptions,
    /// The namespace of the product's pods, and of those that clean up.
    #[arg(long, default_value = "kube-system")]
    namespace: String,
    /// The image of the pods that clean up: this program's own.
    #[arg(long)]
    image: String,
    /// When that image is pulled.
    #[arg(long)]
    image_pull_policy: Option<String>,
    /// A secret to pull it with; may be repeated.
    #[arg(long, value_name = "NAME")]
    image_pull_secret: Vec<String>,
    /// The runtime class of these pods.
    #[arg(long)]
    runtime_class: Option<String>,
    /// The priority class of these pods.
    #[arg(long)]
    priority_class: Option<String>,
    /// The MPS root on the nodes.
    #[arg(long, default_value = MpsRoot::DEFAULT)]
    mps_root: String,
    /// As for `mpshare mps-control-daemon`.
    #[arg(long, default_value = "/proc/1/ns/mnt")]
    host_mount_namespace: PathBuf,
    /// As for `mpshare mps-control-daemon`.
    #[arg(long, default_value = "/")]
    driver_root: PathBuf,
    /// As for `mpshare mps-control-daemon`.
    #[arg(long)]
    mps_programs: Option<PathBuf>,
    /// A label selector of the product's pods: a node is cleaned once it has none of them.
    #[arg(
        long,
        default_value = "qcloud-app in (nvidia-mps-control-daemon,nvidia-device-plugin-daemonset)"
    )]
    former_pods: String,
    /// Seconds to wait on each node for clients to end.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    wait: u64,
    /// Clean up without privileges: files only. For an install that had none.
    #[arg(long)]
    unprivileged: bool,
    /// The Job in that namespace that this runs in. It may go when all nodes are clean.
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
    /// Seconds for all nodes together, beside `--wait`. Helm gives a hook 300 s unless told otherwise,
    /// and its pod has to start in that time too.
    #[arg(long, value_name = "SECONDS", default_value_t = 240)]
    timeout: u64,
}

/// Cleans all nodes. Nodes that aren't clean afterwards are told in the log and in their conditions,
/// and are no error: Helm would say that the uninstall failed when the release is gone.
pub(crate) fn run(args: Args) -> Result<()> {
    run_until_signal(|shutdown| async move {
        let client = args.cluster.client().await?;
        let options = args.options();
        let mut out = io::stdout();
        tokio::select! {
            done = mpshare_uninstall::run(&client, &options, &mut out) => {
                done.map(drop).context("can't uninstall")
            }
            () = shutdown.cancelled() => anyhow::bail!("ended before all nodes were cleaned"),
        }
    })
}

impl Args {
    fn options(self) -> Options {
        let mut arguments = vec![
            format!("--host-mount-namespace={}", self.host_mount_namespace.display()),
            format!("--driver-root={}", self.driver_root.display()),
        ];
        let programs = self.mps_programs.filter(|path| !path.as_os_str().is_empty());
        arguments.extend(programs.map(|path| format!("--mps-programs={}", path.display())));
        Options {
            pod: CleanupPod {
                namespace: self.namespace,
                image: self.image,
                pull_policy: self.image_pull_policy,
                pull_secrets: self.image_pull_secret,
                runtime_class: self.runtime_class,
                priority_class: self.priority_class,
                mps_root: self.mps_root,
                rights: if self.unprivileged { Rights::Unprivileged } else { Rights::Privileged },
                arguments,
                wait: self.wait,
            },
            former_pods: self.former_pods,
            within: Duration::from_secs(self.timeout),
            look_every: Duration::from_secs(1),
            job: self.job,
        }
    }
}
