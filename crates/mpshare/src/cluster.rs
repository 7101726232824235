//! How the Kubernetes API is reached.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use kube::config::KubeConfigOptions;
use kube::{Client, Config};
use mpshare_kubeconfig as kubeconfig;

#[derive(Debug, clap::Args)]
pub(crate) struct ClusterOptions {
    /// A kubeconfig file; without it the pod's service account.
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
}

impl ClusterOptions {
    /// A client; nothing is asked yet.
    pub(crate) async fn client(&self) -> Result<Client> {
        let config = match &self.kubeconfig {
            Some(path) => {
                let file = kubeconfig::read(path)
                    .with_context(|| format!("kubeconfig `{}`", path.display()))?;
                Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                    .await
                    .with_context(|| format!("kubeconfig `{}`", path.display()))?
            }
            None => Config::incluster().context(
                "no service account here; hint: give `--kubeconfig` when not running in a pod",
            )?,
        };
        Client::try_from(config).context("no Kubernetes client")
    }
}
