//! `bind`: room taken in the ledger, then one Binding that puts node and GPU into the pod at once.
//!
//! The API server merges the Binding's annotations into the pod in the write that sets its node
//! (facts/kubernetes.md 6.9). A bind can be repeated: a pod that is on the node already is a
//! success, since an answer may have been lost (kubernetes issue 96579).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use k8s_openapi::api::core::v1::Pod as K8sPod;
use kube::Resource as _;
use kube::api::{PostParams, Request};
use mpshare_api::extender::BindingArgs;
use mpshare_api::names::FIELD_MANAGER;
use mpshare_api::pod::Pod;
use mpshare_api::pod_allocation::annotations;
use mpshare_core::Reason;
use mpshare_core::ledger::{Allocation, Demand, NodeName, PodUid, Reserved};
use serde_json::{Value, json};
use thiserror::Error;

use crate::extender::Extender;
use crate::watch::{pod_of, slim_pods};

/// How long the API server has for each request: all together stay below the 5 s that
/// kube-scheduler waits (facts/kubernetes.md 6.3).
const ASK_PATIENCE: Duration = Duration::from_millis(400);
const BIND_PATIENCE: Duration = Duration::from_secs(3);
const LOOK_PATIENCE: Duration = Duration::from_millis(1_500);

/// Why a pod wasn't bound.
#[derive(Debug, Error)]
pub(crate) enum BindError {
    #[error("the call names no {0}")]
    Incomplete(&'static str),
    #[error("the extender hasn't listed all nodes and pods yet; hint: it is retried")]
    NotReady,
    #[error("{0}")]
    NoRoom(#[from] Reason),
    #[error("pod `{pod}` is on node `{node}` already")]
    Elsewhere { pod: String, node: NodeName },
    #[error("pod `{0}` is being bound by another call; hint: it is retried")]
    Busy(String),
    #[error("pod `{0}` is gone, or another one has its name now")]
    Gone(String),
    #[error("pod `{0}` is being deleted")]
    Deleted(String),
    #[error("the API server refuses to bind pod `{pod}`: {problem}")]
    Refused { pod: String, problem: String },
    #[error("pod `{pod}` can't be read: {problem}")]
    Unreadable { pod: String, problem: String },
    #[error("nobody knows yet whether pod `{pod}` was bound: {problem}; hint: it is retried")]
    Unknown { pod: String, problem: String },
}

/// One call.
struct Bind<'a> {
    extender: &'a Extender,
    args: &'a BindingArgs,
    uid: PodUid,
    node: NodeName,
}

/// Binds a pod, with a GPU for each of its containers.
pub(crate) async fn bind(extender: &Extender, args: &BindingArgs) -> Result<(), BindError> {
    for (value, what) in [
        (&args.pod_name, "pod"),
        (&args.pod_namespace, "namespace"),
        (&args.pod_uid, "UID"),
        (&args.node, "node"),
    ] {
        if value.is_empty() {
            return Err(BindError::Incomplete(what));
        }
    }
    if !extender.is_ready() {
        return Err(BindError::NotReady);
    }
    let (uid, node) = (PodUid(args.pod_uid.clone()), NodeName(args.node.clone()));
    Bind { extender, args, uid, node }.run().await
}

impl Bind<'_> {
    async fn run(&self) -> Result<(), BindError> {
        let demand = self.demand().await?;
        let now = self.extender.now();
        let reserved = self.extender.ledger().reserve(&self.uid, &demand, &self.node, now)?;
        match reserved {
            Reserved::Go(allocation) => self.post(&demand, allocation.as_ref()).await,
            Reserved::AlreadyThere => Ok(()),
            Reserved::Elsewhere(node) => Err(BindError::Elsewhere { pod: self.pod(), node }),
            Reserved::Busy => Err(BindError::Busy(self.pod())),
        }
    }

    /// What the pod asks for: from the question about it, from the watch where it is bound already,
    /// or else from the API server.
    async fn demand(&self) -> Result<Demand, BindError> {
        let known = self.extender.ledger().pod(&self.uid).map(|pod| pod.demand.clone());
        if let Some(demand) = self.extender.asked.take(&self.uid).or(known) {
            return Ok(demand);
        }
        match self.look(ASK_PATIENCE).await {
            Ok(Some(pod)) if pod.metadata.uid == self.uid.0 => Ok(pod.demand()),
            Ok(_) => Err(BindError::Gone(self.pod())),
            Err(problem) => Err(BindError::Unreadable { pod: self.pod(), problem }),
        }
    }

    async fn post(
        &self,
        demand: &Demand,
        allocation: Option<&Allocation>,
    ) -> Result<(), BindError> {
        let request = self.request(demand, allocation);
        let request = match request {
            Ok(request) => request,
            Err(problem) => return Err(self.release(self.refused(problem))),
        };
        let answer = self.extender.client.request_text(request);
        let problem = match tokio::time::timeout(BIND_PATIENCE, answer).await {
            Ok(Ok(_)) => {
                self.extender.ledger().bound(&self.uid, &self.node);
                return Ok(());
            }
            Ok(Err(kube::Error::Api(status))) if is_certain(status.code) => {
                if status.code != 409 {
                    let gone = status.code == 404;
                    let problem = status.message.clone();
                    let why =
                        if gone { BindError::Gone(self.pod()) } else { self.refused(problem) };
                    return Err(self.release(why));
                }
                status.message.clone()
            }
            Ok(Err(error)) => {
                return self.resolve(&mpshare_telemetry::sentence(&error), Was::Open).await;
            }
            Err(_) => return self.resolve("the API server doesn't answer", Was::Open).await,
        };
        self.resolve(&problem, Was::Refused).await
    }

    fn request(
        &self,
        demand: &Demand,
        allocation: Option<&Allocation>,
    ) -> Result<axum::http::Request<Vec<u8>>, String> {
        let binding = self.binding(demand, allocation).to_string().into_bytes();
        let parameters =
            PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let url = K8sPod::url_path(&(), Some(&self.args.pod_namespace));
        let request = Request::new(url).create_subresource(
            "binding",
            &self.args.pod_name,
            &parameters,
            binding,
        );
        request.map_err(|error| error.to_string())
    }

    fn binding(&self, demand: &Demand, allocation: Option<&Allocation>) -> Value {
        let mut metadata = json!({
            "name": self.args.pod_name,
            "namespace": self.args.pod_namespace,
            "uid": self.args.pod_uid,
        });
        if let (Some(allocation), Some(keys)) = (allocation, metadata.as_object_mut()) {
            let ledger = self.extender.ledger();
            let usage = ledger.node(&self.node).and_then(|usage| usage.cards.as_ref().ok());
            let cards = usage.into_iter().flatten().map(|card| card.card.clone());
            let cards: Vec<_> = cards.collect();
            let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let all = annotations(allocation, demand, &cards, time.as_nanos());
            keys.insert("annotations".to_owned(), json!(all));
        }
        json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.args.node},
        })
    }

    /// Finds out how a bind ended that wasn't answered with success.
    async fn resolve(&self, problem: &str, was: Was) -> Result<(), BindError> {
        let pod = match self.look(LOOK_PATIENCE).await {
            Ok(pod) => pod.filter(|pod| pod.metadata.uid == self.uid.0),
            Err(look) => return Err(self.leave_open(format!("{problem}; {look}"))),
        };
        let Some(pod) = pod else { return Err(self.release(BindError::Gone(self.pod()))) };
        let on = pod.spec.node_name.as_deref().filter(|node| !node.is_empty());
        match on {
            // It holds nothing, and the watch, which leaves such pods out, may never show it.
            Some(node) if node == self.node.0 && pod.status.has_ended() => {
                self.extender.ledger().release(&self.uid, &self.node);
                Ok(())
            }
            Some(node) if node == self.node.0 => {
                self.extender.ledger().bound(&self.uid, &self.node);
                Ok(())
            }
            Some(node) => {
                let node = NodeName(node.to_owned());
                Err(self.release(BindError::Elsewhere { pod: self.pod(), node }))
            }
            None if pod.metadata.deletion_timestamp.is_some() => {
                Err(self.release(BindError::Deleted(self.pod())))
            }
            None if was == Was::Refused => Err(self.release(self.refused(problem.to_owned()))),
            // The request may still be on its way.
            None => Err(self.leave_open(problem.to_owned())),
        }
    }

    async fn look(&self, patience: Duration) -> Result<Option<Pod>, String> {
        let pods = slim_pods(&self.extender.client, Some(&self.args.pod_namespace));
        let found = tokio::time::timeout(patience, pods.get_opt(&self.args.pod_name)).await;
        match found {
            Ok(Ok(pod)) => Ok(pod.map(pod_of)),
            Ok(Err(error)) => Err(mpshare_telemetry::sentence(&error)),
            Err(_) => Err("the API server doesn't answer".to_owned()),
        }
    }

    fn release(&self, why: BindError) -> BindError {
        self.extender.ledger().release(&self.uid, &self.node);
        why
    }

    fn leave_open(&self, problem: String) -> BindError {
        self.extender.ledger().leave_open(&self.uid, &self.node, self.extender.now());
        BindError::Unknown { pod: self.pod(), problem }
    }

    fn refused(&self, problem: String) -> BindError {
        BindError::Refused { pod: self.pod(), problem }
    }

    fn pod(&self) -> String {
        format!("{}/{}", self.args.pod_namespace, self.args.pod_name)
    }
}

/// What the API server's answer to a bind was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Was {
    /// No: nothing of it will take effect.
    Refused,
    /// None, or one of something in between: it may still take effect.
    Open,
}

/// Whether an answer with this code means that the request had no effect; 408 and 429 may come from
/// something in between.
const fn is_certain(code: u16) -> bool {
    matches!(code, 400..=407 | 409..=428 | 430..500)
}
