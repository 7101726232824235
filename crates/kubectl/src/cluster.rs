//! Which API server is asked, and what to say when it doesn't answer as hoped.
//!
//! As kubectl has it: `--kubeconfig`, else the files that `KUBECONFIG` lists, else
//! `~/.kube/config`, else the service account of the pod that this runs in.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use mpshare_kubeconfig::ReadError;
use thiserror::Error;

/// For how long a server may say nothing.
const PATIENCE: Duration = Duration::from_secs(30);
/// For how long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);

/// Which cluster.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ClusterOptions {
    /// A kubeconfig file, instead of those that `KUBECONFIG` lists or `~/.kube/config`
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context to use of it, instead of the current one
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

/// Where to ask.
pub(crate) struct Cluster {
    pub(crate) client: Client,
    /// A client that passes on what says "try again later", instead of doing so silently.
    pub(crate) hasty: Client,
    server: String,
}

/// Why nothing can be told.
#[derive(Debug, Error)]
pub(crate) enum ClusterError {
    /// No kubeconfig and no pod's service account.
    #[error(
        "no cluster to ask: no kubeconfig and no service account; hint: give `--kubeconfig FILE`, \
         or set `KUBECONFIG`"
    )]
    NoCluster,
    /// A kubeconfig that isn't one.
    #[error("kubeconfig `{path}`: {}", chain(.source))]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: ReadError,
    },
    /// No context is current.
    #[error(
        "no context is current in the kubeconfig; hint: give `--context NAME`, or run `kubectl \
         config use-context NAME`; there are: {0}"
    )]
    NoContext(String),
    /// The context that was asked for isn't there.
    #[error("no context `{name}` in the kubeconfig; hint: there are: {known}")]
    UnknownContext {
        /// Its name.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// The kubeconfig can't be used.
    #[error("the kubeconfig can't be used: {}", chain(.0))]
    Unusable(#[source] KubeconfigError),
    /// No client can be made of it.
    #[error("no client can be made for this cluster: {}", chain(.0))]
    Client(#[source] kube::Error),
    /// No answer.
    #[error(
        "can't reach the API server `{server}`: {}; hint: does `kubectl get nodes` work, and is \
         this the cluster that you mean (`kubectl config current-context`)?",
        chain(.source)
    )]
    Unreachable {
        /// Its URL.
        server: String,
        /// Why.
        source: kube::Error,
    },
    /// Nobody there knows who asks.
    #[error(
        "the API server `{0}` doesn't accept your credentials; hint: log in again, and see \
         `kubectl auth whoami`"
    )]
    Unauthorized(String),
    /// Not allowed.
    #[error(
        "not allowed to {verb} {what}: {message}; hint: {}; see `kubectl auth can-i {verb} {what}`",
        right(verb, what)
    )]
    Forbidden {
        /// `get` or `list`.
        verb: &'static str,
        /// The kind of object.
        what: &'static str,
        /// What the server says.
        message: String,
    },
    /// Any other refusal.
    #[error("can't {verb} {what}: {}", chain(.source))]
    Refused {
        /// `get` or `list`.
        verb: &'static str,
        /// The kind of object.
        what: &'static str,
        /// What the server says.
        source: kube::Error,
    },
    /// A name that no node has.
    #[error("no node `{0}` in the cluster; hint: `kubectl get nodes` lists them")]
    NoSuchNode(String),
}

impl ClusterOptions {
    /// The cluster; nothing is asked yet.
    pub(crate) async fn connect(&self) -> Result<Cluster, ClusterError> {
        let mut config = match self.kubeconfig()? {
            Some(file) => self.of_kubeconfig(file).await?,
            None => Config::incluster().map_err(|_| ClusterError::NoCluster)?,
        };
        config.connect_timeout = Some(CONNECT);
        config.read_timeout = Some(PATIENCE);
        config.write_timeout = Some(PATIENCE);
        let server = config.cluster_url.to_string();
        let mut hasty = config.clone();
        hasty.default_retry = false;
        let client = |config| Client::try_from(config).map_err(ClusterError::Client);
        Ok(Cluster { client: client(config)?, hasty: client(hasty)?, server })
    }

    async fn of_kubeconfig(&self, file: Kubeconfig) -> Result<Config, ClusterError> {
        let names: Vec<String> =
            file.contexts.iter().map(|context| format!("`{}`", context.name)).collect();
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let options =
            KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let config = Config::from_custom_kubeconfig(file, &options).await;
        config.map_err(|error| match error {
            KubeconfigError::CurrentContextNotSet => ClusterError::NoContext(known),
            KubeconfigError::LoadContext(name) => ClusterError::UnknownContext { name, known },
            other => ClusterError::Unusable(other),
        })
    }

    /// The kubeconfig, merged of all files; `None` where there is none.
    fn kubeconfig(&self) -> Result<Option<Kubeconfig>, ClusterError> {
        if let Some(path) = &self.kubeconfig {
            return read(path).map(Some);
        }
        let listed = std::env::var_os("KUBECONFIG").filter(|list| !list.is_empty());
        let paths: Vec<PathBuf> = match listed {
            Some(list) => std::env::split_paths(&list).collect(),
            None => {
                std::env::home_dir().map(|home| home.join(".kube/config")).into_iter().collect()
            }
        };
        let mut merged: Option<Kubeconfig> = None;
        // A listed file that isn't there counts for nothing, as kubectl has it.
        for path in paths.iter().filter(|path| !path.as_os_str().is_empty() && path.exists()) {
            let next = read(path)?;
            merged = Some(match merged {
                None => next,
                Some(before) => before.merge(next).map_err(ClusterError::Unusable)?,
            });
        }
        Ok(merged)
    }
}

impl Cluster {
    /// What a failed request means.
    pub(crate) fn explain(
        &self,
        verb: &'static str,
        what: &'static str,
        error: kube::Error,
    ) -> ClusterError {
        match error {
            kube::Error::Api(status) if status.code == 401 => {
                ClusterError::Unauthorized(self.server.clone())
            }
            kube::Error::Api(status) if status.code == 403 => {
                ClusterError::Forbidden { verb, what, message: status.message.clone() }
            }
            source @ (kube::Error::HyperError(_) | kube::Error::Service(_)) => {
                ClusterError::Unreachable { server: self.server.clone(), source }
            }
            source => ClusterError::Refused { verb, what, source },
        }
    }
}

/// Which right is missing.
fn right(verb: &str, what: &str) -> String {
    match verb {
        "get" | "list" => {
            "a ClusterRole with `get` and `list` on `nodes` and `pods` is all that is needed"
                .to_owned()
        }
        _ => format!("a ClusterRole with `{verb}` on `{what}` is needed for it"),
    }
}

fn read(path: &Path) -> Result<Kubeconfig, ClusterError> {
    mpshare_kubeconfig::read(path)
        .map_err(|source| ClusterError::Kubeconfig { path: path.to_owned(), source })
}

/// An error and its causes, each said once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        next = cause.source();
    }
    text
}
