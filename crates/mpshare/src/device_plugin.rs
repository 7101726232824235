//! `mpshare device-plugin`: offers GPU units to the kubelet.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use mpshare_device_plugin::{Options, Timings};

use crate::mps_root::RootOptions;
use crate::options::run_until_signal;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    root: RootOptions,
    /// The MPS root as the container runtime sees it; without it the same path.
    #[arg(long)]
    host_mps_root: Option<PathBuf>,
    /// The directory of `kubelet.sock` and of the plugins' sockets.
    #[arg(long, default_value = "/var/lib/kubelet/device-plugins")]
    device_plugins_dir: PathBuf,
    /// The kubelet's pod resources socket.
    #[arg(long, default_value = "/var/lib/kubelet/pod-resources/kubelet.sock")]
    pod_resources_socket: PathBuf,
    /// Where device nodes are.
    #[arg(long, env = "NVIDIA_DEV_ROOT", default_value = "/dev")]
    dev_root: PathBuf,
    /// Vendor and class of CDI device names.
    #[arg(long, default_value = "nvidia.com/gpu")]
    cdi_kind: String,
}

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(args: Args) -> Result<()> {
    let mps_root = args.root.root().path().to_owned();
    let options = Options {
        plugins_dir: args.device_plugins_dir,
        pod_resources_socket: args.pod_resources_socket,
        host_mps_root: args.host_mps_root.unwrap_or_else(|| mps_root.clone()),
        mps_root,
        dev_root: args.dev_root,
        cdi_kind: args.cdi_kind,
        timings: Timings::default(),
    };
    run_until_signal(|shutdown| async move {
        mpshare_device_plugin::run(options, shutdown).await.context("the device plugin can't work")
    })
}
