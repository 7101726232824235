//! Nodes and pods by the few of their fields that matter here (those of pods are
//! [`mpshare_api::pod`]), a page at a time: a whole pod has many kilobytes, and a cluster has tens
//! of thousands.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node as ApiNode, Pod as ApiPod};
use kube::api::{GetParams, ListParams, Request};
use kube::{Client, Resource as _};
use mpshare_api::names::MEMORY_RESOURCE;
use mpshare_api::pod::Pod;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// What the real API server answers without much ado.
const PAGE: u32 = 500;

/// How often a list is begun anew whose next page the server has forgotten.
const ATTEMPTS: usize = 3;

/// A node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Node {
    pub(crate) metadata: Metadata,
    pub(crate) status: NodeStatus,
}

/// Who an object is.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Metadata {
    pub(crate) name: String,
    #[serde(rename = "resourceVersion")]
    pub(crate) resource_version: String,
    pub(crate) annotations: Option<BTreeMap<String, String>>,
}

/// What a node has.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeStatus {
    pub(crate) addresses: Option<Vec<Address>>,
    pub(crate) capacity: Option<BTreeMap<String, Value>>,
    pub(crate) allocatable: Option<BTreeMap<String, Value>>,
    pub(crate) conditions: Option<Vec<Condition>>,
}

/// Where a node is reached.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Address {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) address: String,
}

/// What somebody says about a node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: String,
    pub(crate) message: Option<String>,
}

impl Metadata {
    /// An annotation's text.
    pub(crate) fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(name).map(String::as_str)
    }
}

/// Whether a pod asks for GPU memory: all others are of no interest.
fn asks_for_memory(pod: &Pod) -> bool {
    pod.demand().wishes().iter().any(|wish| wish.resource.as_str() == MEMORY_RESOURCE)
}

/// A pod, and what kinds of objects it belongs to.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Value")]
pub(crate) struct OwnedPod {
    pub(crate) pod: Pod,
    pub(crate) owners: Vec<String>,
}

impl TryFrom<Value> for OwnedPod {
    type Error = serde_json::Error;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        let owners = value.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        let kind = |owner: &Value| Some(owner.get("kind")?.as_str()?.to_owned());
        let owners = owners.into_iter().flatten().filter_map(kind).collect();
        Ok(Self { pod: serde_json::from_value(value)?, owners })
    }
}

#[derive(Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
struct List<T> {
    #[serde(default)]
    metadata: ListMetadata,
    items: Option<Vec<T>>,
}

#[derive(Default, Deserialize)]
struct ListMetadata {
    #[serde(rename = "continue")]
    next: Option<String>,
}

/// One node; `None` where there is none of this name.
pub(crate) async fn node(client: &Client, name: &str) -> Result<Option<Node>, kube::Error> {
    let request = Request::new(ApiNode::url_path(&(), None)).get(name, &GetParams::default());
    match client.request(request.map_err(kube::Error::BuildRequest)?).await {
        Ok(node) => Ok(Some(node)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// All nodes.
pub(crate) async fn nodes(client: &Client) -> Result<Vec<Node>, kube::Error> {
    let url = ApiNode::url_path(&(), None);
    list(client, &url, ListParams::default(), |_: &Node| true).await
}

/// The pods that ask for GPU memory, are on a node and haven't ended; of one node or of all.
pub(crate) async fn pods(client: &Client, node: Option<&str>) -> Result<Vec<Pod>, kube::Error> {
    let place = node.map_or("spec.nodeName!=".to_owned(), |name| format!("spec.nodeName={name}"));
    let fields = format!("{place},status.phase!=Succeeded,status.phase!=Failed");
    let url = ApiPod::url_path(&(), None);
    list(client, &url, ListParams::default().fields(&fields), asks_for_memory).await
}

/// The pods of a node that haven't ended.
pub(crate) async fn pods_on(client: &Client, node: &str) -> Result<Vec<OwnedPod>, kube::Error> {
    let fields = format!("spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed");
    let url = ApiPod::url_path(&(), None);
    list(client, &url, ListParams::default().fields(&fields), |_: &OwnedPod| true).await
}

async fn list<T: DeserializeOwned>(
    client: &Client,
    url: &str,
    which: ListParams,
    keep: impl Fn(&T) -> bool,
) -> Result<Vec<T>, kube::Error> {
    let which = which.limit(PAGE);
    let mut attempt = 1;
    loop {
        match pages(client, url, which.clone(), &keep).await {
            // The server keeps the version that a list began with for minutes only.
            Err(kube::Error::Api(status)) if status.code == 410 && attempt < ATTEMPTS => {
                attempt += 1;
            }
            done => return done,
        }
    }
}

async fn pages<T: DeserializeOwned>(
    client: &Client,
    url: &str,
    mut which: ListParams,
    keep: &impl Fn(&T) -> bool,
) -> Result<Vec<T>, kube::Error> {
    let mut all = Vec::new();
    loop {
        let request = Request::new(url).list(&which).map_err(kube::Error::BuildRequest)?;
        let page: List<T> = client.request(request).await?;
        all.extend(page.items.unwrap_or_default().into_iter().filter(keep));
        match page.metadata.next.filter(|token| !token.is_empty()) {
            Some(token) => which = which.continue_token(&token),
            None => return Ok(all),
        }
    }
}
