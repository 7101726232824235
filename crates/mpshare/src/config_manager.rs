//! `mpshare config-manager`: chooses the node's config.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context as _, Result};
use mpshare_api::names::CONFIG_MAP;
use mpshare_config_manager::{ConfigSource, Fallback, Options};

use crate::cluster::ClusterOptions;
use crate::mps_root::RootOptions;
use crate::options::run_until_signal;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    root: RootOptions,
    /// This node's name.
    #[arg(long, env = "NODE_NAME")]
    node_name: String,
    #[command(flatten)]
    cluster: ClusterOptions,
    /// Namespace of the `ConfigMap`.
    #[arg(long, env = "CONFIG_MAP_NAMESPACE", default_value = "kube-system")]
    config_map_namespace: String,
    /// Name of the `ConfigMap` with one key per config.
    #[arg(long, env = "CONFIG_MAP_NAME", default_value = CONFIG_MAP)]
    config_map_name: String,
    /// Read configs from the files of this directory instead of a `ConfigMap`.
    #[arg(long, env = "CONFIG_FILE_SRCDIR")]
    config_dir: Option<PathBuf>,
    /// The config of a node without a label.
    #[arg(long, env = "DEFAULT_CONFIG")]
    default_config: Option<String>,
    /// What is tried, in this order, without label and default: `named` (the config `default`),
    /// `single` (the only one), `empty` (whole cards). An empty value is none.
    #[arg(long, env = "FALLBACK_STRATEGIES", default_value = "named,single")]
    fallback_strategies: Fallbacks,
}

/// Names with commas between.
#[derive(Debug, Clone)]
struct Fallbacks(Vec<Fallback>);

impl FromStr for Fallbacks {
    type Err = <Fallback as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let names = text.split(',').filter(|_| !text.is_empty());
        names.map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

/// Chooses until SIGTERM or SIGINT.
pub(crate) fn run(args: Args) -> Result<()> {
    run_until_signal(|shutdown| async move {
        let client = args.cluster.client().await?;
        let source = args.config_dir.map_or(
            ConfigSource::ConfigMap {
                namespace: args.config_map_namespace,
                name: args.config_map_name,
            },
            ConfigSource::Directory,
        );
        let options = Options {
            node: args.node_name,
            root: args.root.root(),
            source,
            // An empty value is how a chart says "none".
            default_config: args.default_config.filter(|name| !name.is_empty()),
            fallbacks: args.fallback_strategies.0,
        };
        mpshare_config_manager::run(client, options, shutdown)
            .await
            .context("the config-manager can't work")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_of_fallbacks_is_none_and_an_unknown_name_is_refused() {
        let read = |text: &str| text.parse::<Fallbacks>().map(|fallbacks| fallbacks.0);
        assert_eq!(read("").unwrap(), []);
        assert_eq!(read("named,empty").unwrap(), [Fallback::Named, Fallback::Empty]);
        assert!(read("named,first").is_err());
    }
}
