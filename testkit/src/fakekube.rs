//! An in-memory Kubernetes API server for tests and the demo.
//!
//! It serves plain HTTP on a loopback port and is meant to fool clients that don't know about it:
//! kube's client and watchers, and `kubectl`. What the real server refuses, it refuses with the
//! same code, reason and sentence (facts/kubernetes.md 5, 6.9, 8, 9). There are no controllers, no
//! authentication and no schemas; admission and container logs are seams ([`Admission`],
//! [`PodLogs`]). Faults are injected through [`FakeKube::faults`].
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use mpshare_testkit::fakekube::FakeKube;
//! use serde_json::json;
//!
//! let kube = FakeKube::start().await?;
//! kube.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})).await?;
//! let client = kube.client()?;
//! kube.patch_node_label("n1", "nvidia.com/device-plugin.config", "mps-2x").await?;
//! # Ok(())
//! # }
//! ```

mod admission;
mod asked;
mod changes;
mod cluster;
mod defaults;
mod discovery;
mod error;
mod event_form;
mod fault;
mod identity;
mod inside;
mod kinds;
mod lifecycle;
mod list;
mod logs;
mod object;
mod patch;
mod pod;
mod query;
mod representation;
mod resource;
mod route;
mod selector;
mod server;
mod store;
mod strategic;
mod strategy;
mod table;
mod validation;
mod watch;
mod write;

pub use admission::{Admission, Operation, Review};
pub use changes::{Change, ChangeKind, Changes};
pub use cluster::WatchEnd;
pub use error::ApiError;
pub use fault::{Effect, Faults, Matching, Times};
pub use logs::{Follow, LogRequest, PodLogs};
pub use resource::{Generation, Origin, ResourceType, Scope, StatusRule};

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::serve::ListenerExt as _;
use serde_json::json;
use tokio::net::TcpListener;

use cluster::Cluster;

/// Namespaces that a fresh cluster has.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// How a server is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// How many changes are kept for watches; older versions get 410.
    pub history: usize,
    /// How often a watch that allows bookmarks gets one (about a minute in the real server).
    pub bookmark_interval: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            history: 4096,
            bookmark_interval: Duration::from_secs(1),
        }
    }
}

/// A running API server; it ends when this value is dropped.
pub struct FakeKube {
    cluster: Arc<Cluster>,
    address: SocketAddr,
}

impl FakeKube {
    /// Starts a server with the default settings, on a free port of 127.0.0.1.
    pub async fn start() -> io::Result<Self> {
        Self::start_with(Settings::default()).await
    }

    /// Starts a server.
    pub async fn start_with(settings: Settings) -> io::Result<Self> {
        let listener = TcpListener::bind(settings.listen).await?;
        let address = listener.local_addr()?;
        let cluster = Arc::new(Cluster::new(settings.history, settings.bookmark_interval));
        let router = server::router(Arc::clone(&cluster));
        let stop = cluster.shutdown.clone();
        // As Go's server does: a small watch event must not wait for the ACK of the one before.
        let listener = listener.tap_io(|connection| {
            if let Err(error) = connection.set_nodelay(true) {
                tracing::debug!(%error, "no TCP_NODELAY");
            }
        });
        tokio::spawn(async move {
            let served =
                axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await;
            if let Err(error) = served {
                tracing::error!(%error, "the fake API server ended");
            }
        });
        let kube = Self { cluster, address };
        for namespace in NAMESPACES {
            kube.create_namespace(namespace).await.map_err(io::Error::other)?;
        }
        Ok(kube)
    }

    /// The base URL of the server.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A client for this server, with the namespace `default`.
    ///
    /// It is kube's own, which repeats requests answered with 429, 503 and 504 for a while before
    /// it gives up; [`FakeKube::client_without_retries`] shows such answers at once.
    pub fn client(&self) -> anyhow::Result<kube::Client> {
        let config = kube::Config::new(self.url().parse()?);
        Ok(kube::Client::try_from(config)?)
    }

    /// A client that passes every refusal on.
    pub fn client_without_retries(&self) -> anyhow::Result<kube::Client> {
        let mut config = kube::Config::new(self.url().parse()?);
        config.default_retry = false;
        Ok(kube::Client::try_from(config)?)
    }

    /// Writes a kubeconfig for this server into a directory and returns the file's path.
    pub fn kubeconfig(&self, directory: &Path) -> io::Result<PathBuf> {
        let path = directory.join("kubeconfig");
        // JSON is YAML, and kubectl reads it.
        let content = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "fake", "cluster": {"server": self.url()}}],
            "users": [{"name": "fake", "user": {}}],
            "contexts": [{
                "name": "fake",
                "context": {"cluster": "fake", "user": "fake", "namespace": "default"},
            }],
            "current-context": "fake",
        });
        std::fs::write(&path, format!("{content:#}\n"))?;
        Ok(path)
    }

    /// Adds a kind, as creating its `CustomResourceDefinition` would.
    pub fn register(&self, resource: ResourceType) {
        self.cluster.register(resource);
    }

    /// Puts a hook before all writes that come from now on.
    pub fn set_admission(&self, hook: Arc<dyn Admission>) {
        self.cluster.set_admission(hook);
    }

    /// Serves `pods/log` from this provider.
    pub fn set_logs(&self, provider: Arc<dyn PodLogs>) {
        self.cluster.set_logs(provider);
    }

    /// The faults of this server.
    pub fn faults(&self) -> &Faults {
        &self.cluster.faults
    }

    /// Answers lists as of now, however much changes, until [`Faults::clear`].
    pub fn freeze_lists(&self) {
        self.cluster.faults.freeze_lists(self.revision());
    }

    /// Ends all running watches.
    pub fn end_watches(&self, how: WatchEnd) {
        self.cluster.end_watches(how);
    }

    /// Forgets the history: a watch that starts from a version before now gets 410.
    ///
    /// The version moves on first, so that no client is up to date by luck.
    pub fn compact_history(&self) {
        self.cluster.change(|store| {
            store.advance();
            store.compact();
        });
    }

    /// The newest version of the store.
    pub fn revision(&self) -> u64 {
        self.cluster.read(store::Store::revision)
    }

    /// All changes from now on, in order.
    pub fn changes(&self) -> Changes {
        Changes::new(Arc::clone(&self.cluster))
    }
}

impl Drop for FakeKube {
    fn drop(&mut self) {
        self.cluster.shutdown.cancel();
    }
}
