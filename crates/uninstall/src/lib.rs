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
//! | `condition` | the condition of a node after that |
//! | `outcome` | what became of a node, in sentences (pure) |

use std::io::{self, Write};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use kube::Client;
use mpshare_telemetry::sentence;
use thiserror::Error;

mod condition;
mod nodes;
mod outcome;
mod pod;
mod pods;
mod visit;

pub use outcome::{NodeOutcome, Outcome};
pub use pod::CleanupPod;

/// How many nodes are visited at a time.
const AT_ONCE: usize = 16;

/// What to do.
#[derive(Debug, Clone)]
pub struct Options {
    /// The pod that is run on each node.
    pub pod: CleanupPod,
    /// A label selector of the product's pods: a node is cleaned once it has none.
    pub former_pods: String,
    /// For how long to wait for them to be gone.
    pub wait_for_former_pods: Duration,
    /// For how long to wait for a cleanup to end, beside the time that it waits for clients.
    pub wait_for_cleanup: Duration,
    /// Between two looks at a pod.
    pub look_every: Duration,
}

/// Why nothing could be done at all.
#[derive(Debug, Error)]
pub enum UninstallError {
    /// The nodes can't be listed.
    #[error("can't list the nodes")]
    Nodes(#[source] kube::Error),
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
    let nodes = nodes::concerned(client).await.map_err(UninstallError::Nodes)?;
    if nodes.is_empty() {
        writeln!(out, "no node has anything of mpshare")?;
    }
    let visits = stream::iter(nodes).map(|node| async move {
        let outcome = visit::node(client, options, &node).await;
        let outcome = NodeOutcome { node: node.name.clone(), outcome };
        if let Err(error) = condition::follow(client, &node, &outcome).await {
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
    Ok(outcomes)
}
