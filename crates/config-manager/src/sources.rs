//! What is known now, as one stream of facts: the Node and the configs from the API or a
//! directory, the supervisor's report and the config in force from the MPS root.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::stream::{self, BoxStream, select_all};
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::utils::ResetTimerBackoff;
use kube::runtime::watcher::{self, watch_object};
use kube::{Api, Client};
use mpshare_api::config::MAX_BYTES;
use mpshare_api::names::DRAIN;
use mpshare_api::{
    Allocations, BoundPods, ChosenConfig, Holdings, MpsRoot, NodeStatus, PluginStatus, Versioned,
    read_file, read_versioned,
};
use mpshare_telemetry::{Failures, sentence};
use mpshare_watch::{Directory, IfMissing, Removed, WatchMask};

use crate::backoff::Doubling;
use crate::node_status::{NodeStatusFacts, NodeStatusReader};
use crate::options::{ConfigSource, Options};
use crate::pods;
use crate::view::{Fact, NodeFacts};

/// Waits between attempts to reach the API, with jitter.
const FIRST_RETRY: Duration = Duration::from_millis(200);
const LONGEST_RETRY: Duration = Duration::from_secs(15);

/// After so long without failure the waits begin with the first again.
const CALM: Duration = Duration::from_mins(1);

/// How often files are read whatever was told of them.
const RECHECK: Duration = Duration::from_secs(10);

/// A fact, or the end: a directory that was read was removed under its mount.
pub(crate) type Told = Result<Fact, Removed>;

/// All facts. The stream ends only with an error.
pub(crate) fn facts(
    client: &Client,
    options: &Options,
) -> impl Stream<Item = Told> + Unpin + use<> {
    let configs = match &options.source {
        ConfigSource::ConfigMap { namespace, name } => config_map(client, namespace, name),
        ConfigSource::Directory(path) => directory(path.clone()),
    };
    let pods = patient("pods of this node", pods::on(client, &options.node));
    let pods = pods.map(Fact::Pods).map(Ok).boxed();
    select_all([node(client, &options.node), configs, pods, files(options.root.clone())])
}

/// The Node, seen by its metadata; each change of it, of its status too, has what counts of its
/// status read, the rest of which is large and isn't kept.
fn node(client: &Client, name: &str) -> BoxStream<'static, Told> {
    let api = Api::<PartialObjectMeta<Node>>::all(client.clone());
    let status = NodeStatusReader::new(client.clone(), name.to_owned());
    let facts = move |node: Option<PartialObjectMeta<Node>>| {
        let status = status.clone();
        async move {
            let Some(node) = node else { return Fact::Node(None) };
            let NodeStatusFacts { qgpu, sight } = status.facts().await;
            let mut annotations = node.metadata.annotations.unwrap_or_default();
            Fact::Node(Some(NodeFacts {
                uid: node.metadata.uid.unwrap_or_default(),
                drain: annotations.remove(DRAIN),
                labels: node.metadata.labels.unwrap_or_default(),
                qgpu,
                sight,
            }))
        }
    };
    patient("Node", watch_object(api, name)).then(facts).map(Ok).boxed()
}

fn config_map(client: &Client, namespace: &str, name: &str) -> BoxStream<'static, Told> {
    let api = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let facts = |map: Option<ConfigMap>| Fact::Configs(map.map(|map| map.data.unwrap_or_default()));
    patient("ConfigMap", watch_object(api, name)).map(facts).map(Ok).boxed()
}

/// The successes of a watch, which is repeated with back-off; that it fails is logged once.
fn patient<T: Send + 'static>(
    what: &'static str,
    watch: impl Stream<Item = Result<T, watcher::Error>> + Send + 'static,
) -> impl Stream<Item = T> + Send {
    let backoff = ResetTimerBackoff::new(Doubling::new(FIRST_RETRY, LONGEST_RETRY), CALM);
    let mut failures = 0_u64;
    let log = move |result: &Result<T, watcher::Error>| match result {
        Ok(_) => log_recovery(what, std::mem::take(&mut failures)),
        Err(error) => {
            failures += 1;
            log_failure(what, failures, error);
        }
    };
    let results = watch.backoff(backoff).inspect(log);
    results.filter_map(|result| async move { result.ok() })
}

fn log_recovery(what: &str, failures: u64) {
    if failures > 0 {
        tracing::info!(what, failures, "the Kubernetes API answers again");
    }
}

fn log_failure(what: &str, failures: u64, error: &watcher::Error) {
    if failures == 1 {
        tracing::warn!(what, %error, "can't watch; the config in force stays, retrying");
    }
}

/// A directory with one file per config.
fn directory(path: PathBuf) -> BoxStream<'static, Told> {
    let changes = changes(path.clone(), |_| true);
    changes.map(move |told| told.map(|()| Fact::Configs(read_configs(&path)))).boxed()
}

/// Says that something in a directory may have changed, or that it was removed.
fn changes(
    path: PathBuf,
    is_of_interest: fn(&OsStr) -> bool,
) -> impl Stream<Item = Result<(), Removed>> {
    let directory = Directory {
        path,
        if_missing: IfMissing::Wait,
        // Its writers, our own programs and the kubelet for a mounted `ConfigMap`, replace files by
        // rename; a person may write in place.
        mask: WatchMask::CREATE
            | WatchMask::CLOSE_WRITE
            | WatchMask::MOVED_TO
            | WatchMask::MOVED_FROM
            | WatchMask::DELETE,
        is_of_interest,
        recheck: RECHECK,
    };
    stream::unfold(directory.watch(), |mut watch| async move {
        let told = watch.next().await.map(drop);
        Some((told, watch))
    })
}

/// The configs of a directory. Names that begin with `..` belong to the kubelet's way of mounting.
fn read_configs(directory: &Path) -> Option<BTreeMap<String, String>> {
    let entries = std::fs::read_dir(directory).ok()?;
    let configs = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let name = entry.file_name().into_string().ok()?;
        let path = entry.path();
        if name.starts_with("..") || !path.is_file() {
            return None;
        }
        match read_text(&path) {
            Ok(text) => Some((name, text)),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "can't read config");
                None
            }
        }
    });
    Some(configs.collect())
}

/// The text of a config that isn't larger than any that is accepted.
fn read_text(path: &Path) -> io::Result<String> {
    let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX);
    String::from_utf8(read_file(path, limit)?).map_err(io::Error::other)
}

/// The supervisor's report, what the device plugin says and hands out, and what stands in `config.yaml`.
fn files(root: MpsRoot) -> BoxStream<'static, Told> {
    let concerns = |name: &OsStr| {
        [
            "status.json",
            "device-plugin.json",
            "allocations.json",
            "holdings.json",
            "bound-pods.json",
            "config.yaml",
        ]
        .iter()
        .any(|file| name == *file)
    };
    let changes = changes(root.path().to_owned(), concerns);
    let mut documents = Documents { failures: BTreeMap::new() };
    let mut read = move || Fact::Files {
        status: documents.read::<NodeStatus>(root.status()),
        plugin: documents.read::<PluginStatus>(root.plugin_status()),
        allocations: documents.read::<Allocations>(root.allocations()),
        holdings: documents.read::<Holdings>(root.holdings()),
        bound: documents.read::<BoundPods>(root.bound_pods()),
        config: documents.read::<ChosenConfig>(root.config()),
    };
    changes.map(move |told| told.map(|()| read())).boxed()
}

/// Reads documents, and says once what is wrong with one.
struct Documents {
    failures: BTreeMap<PathBuf, Failures>,
}

impl Documents {
    /// A damaged document counts as absent; its writer replaces it.
    fn read<T: Versioned>(&mut self, path: PathBuf) -> Option<T> {
        let read = read_versioned(&path);
        let failures =
            self.failures.entry(path).or_insert_with(|| Failures::new("document ignored"));
        match read {
            Ok(document) => {
                failures.over();
                document
            }
            Err(error) => {
                failures.failed(&sentence(&error));
                None
            }
        }
    }
}
