//! Taking mpshare off all nodes of a cluster: the job that the chart runs after its pods were
//! deleted.
//!
//! MPS daemons are host processes and don't end with our pods. So on each node a pod runs `mpshare
//! node cleanup`; what it said is told here, and the node condition of a clean node is removed.
//! Clients that live on are no failure: they keep their daemon, and it is said how to finish. What
//! is done on a node is the supervisor crate's business, not this one's.
//!
//! | module | idea |
//! |---|---|
//! | `nodes` | which nodes there is something to do on |
//! | `pod` | the pod that cleans up (pure) |
//! | `pods` | asking for pods, making and deleting them |
//! | `visit` | one node: wait for our pods' end, run the pod, read its end |
//! | `patience` | asking the API server again until a deadline |
//! | `condition` | the condition of a node after that |
//! | `outcome` | what became of a node, in sentences (pure) |
//! | `job` | how long the job itself stays |

use std::io::{self, Write};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use kube::Client;
use mpshare_telemetry::sentence;
use thiserror::Error;

mod condition;
mod job;
mod nodes;
mod outcome;
mod patience;
mod pod;
mod pods;
mod visit;

pub use outcome::{NodeOutcome, Outcome};
pub use patience::AskError;
use patience::Patience;
pub use pod::{CleanupPod, Rights};

/// How many nodes are visited at a time. A visit takes some seconds; those that hang until the
/// deadline must leave room for all others.
const AT_ONCE: usize = 64;

/// What to do.
#[derive(Debug, Clone)]
pub struct Options {
    /// The pod that is run on each node.
    pub pod: CleanupPod,
    /// A label selector of the product's pods: a node is cleaned once it has none.
    pub former_pods: String,
    /// The time for all nodes together, beside that which a cleanup waits for clients.
    pub within: Duration,
    /// Between two looks at a pod.
    pub look_every: Duration,
    /// The Job that this runs in, in the pods' namespace. It may go once all nodes are clean.
    pub job: Option<String>,
}

impl Options {
    /// The time for all nodes.
    fn time(&self) -> Duration {
        self.within + Duration::from_secs(self.pod.wait)
    }
}

/// Why nothing could be done at all.
#[derive(Debug, Error)]
pub enum UninstallError {
    /// The nodes can't be listed.
    #[error("can't list the nodes")]
    Nodes(#[source] AskError),
    /// What became of a node can't be written.
    #[error("can't write what became of the nodes")]
    Output(#[from] io::Error),
}

/// Cleans all nodes that have, or may have, something of the product, and writes what became of
/// each as soon as it is known.
pub async fn run(
    client: &Client,
    options: &Options,
    out: &mut impl Write,
) -> Result<Vec<NodeOutcome>, UninstallError> {
    let patience = Patience::lasting(options.time(), options.look_every);
    let nodes = patience.ask(|| nodes::concerned(client)).await.map_err(UninstallError::Nodes)?;
    if nodes.is_empty() {
        writeln!(out, "no node has anything of mpshare")?;
    }
    let patience = &patience;
    let visits = stream::iter(nodes).map(|node| async move {
        let outcome = visit::node(client, options, patience, &node).await;
        let outcome = NodeOutcome { node: node.name.clone(), outcome };
        if let Err(error) = condition::follow(client, options, &node, &outcome).await {
            // The node is as it is; only its condition tells of former times.
            tracing::warn!(node = node.name, error = sentence(&error), "condition not changed");
        }
        outcome
    });
    let mut visits = visits.buffer_unordered(AT_ONCE);
    let mut outcomes = Vec::new();
    while let Some(outcome) = visits.next().await {
        outcome.write(&options.pod, out)?;
        outcomes.push(outcome);
    }
    outcomes.sort_by(|a, b| a.node.cmp(&b.node));
    if outcomes.iter().all(NodeOutcome::is_clean)
        && let Some(job) = &options.job
        && let Err(error) = job::let_go(client, options, job).await
    {
        tracing::warn!(job, error = sentence(&error), "the job stays for its usual time");
    }
    Ok(outcomes)
}
