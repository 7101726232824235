//! `NODE[/GPU]`, and the cards of a node that it names.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use mpshare_api::inventory_annotation::{NodeGpu, NodeGpus};
use mpshare_api::names::{CONDITION, NODE_GPUS};
use mpshare_core::GpuUuid;
use thiserror::Error;

use crate::objects::Node;

/// What a person names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) node: String,
    /// Index, UUID or the beginning of one; all cards without it.
    gpu: Option<String>,
}

/// The cards that are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cards {
    All,
    One { uuid: GpuUuid, index: u32 },
}

/// Why no card is meant.
#[derive(Debug, Error)]
pub(crate) enum TargetError {
    /// Not a node of ours.
    #[error(
        "node `{node}` tells of no GPUs under mpshare; hint: does its device plugin's pod run, and \
         has the node a config?"
    )]
    NoCards {
        /// The node.
        node: String,
    },
    /// What it says can't be read.
    #[error("annotation `{NODE_GPUS}` of node `{node}` can't be read: {problem}")]
    Unreadable {
        /// The node.
        node: String,
        /// Why.
        problem: String,
    },
    /// None of this name.
    #[error("node `{node}` has no GPU `{asked}`; hint: it has {}", list(.known))]
    Unknown {
        /// The node.
        node: String,
        /// What was asked for.
        asked: String,
        /// What there is.
        known: Vec<NodeGpu>,
    },
    /// Several begin so.
    #[error("several GPUs of node `{node}` begin with `{asked}`; hint: they are {}", list(.matching))]
    Ambiguous {
        /// The node.
        node: String,
        /// What was asked for.
        asked: String,
        /// Those that begin so.
        matching: Vec<NodeGpu>,
    },
}

fn list(gpus: &[NodeGpu]) -> String {
    if gpus.is_empty() {
        return "none that are shared, and whole ones are drained with their node".to_owned();
    }
    let one = |gpu: &NodeGpu| format!("{} (`{}`)", gpu.index, gpu.uuid);
    gpus.iter().map(one).collect::<Vec<_>>().join(", ")
}

impl FromStr for Target {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // A node's name has no slash.
        let (node, gpu) =
            text.split_once('/').map_or((text, None), |(node, gpu)| (node, Some(gpu)));
        Ok(Self { node: node.to_owned(), gpu: gpu.map(str::to_owned) })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.gpu {
            None => f.write_str(&self.node),
            Some(gpu) => write!(f, "{}/{gpu}", self.node),
        }
    }
}

impl fmt::Display for Cards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("the whole node"),
            Self::One { uuid, index } => write!(f, "GPU {index} (`{uuid}`)"),
        }
    }
}

impl Cards {
    /// Whether this card is one of them.
    pub(crate) fn contains(&self, gpu: &str) -> bool {
        match self {
            Self::All => true,
            Self::One { uuid, .. } => uuid.as_str() == gpu,
        }
    }
}

impl Target {
    /// The cards of this node that are meant.
    pub(crate) fn cards(&self, node: &Node) -> Result<Cards, TargetError> {
        let name = || self.node.clone();
        let conditions = node.status.conditions.iter().flatten();
        let is_ours = conditions.into_iter().any(|condition| condition.kind == CONDITION);
        let text = node.metadata.annotation(NODE_GPUS);
        if text.is_none() && !is_ours {
            return Err(TargetError::NoCards { node: name() });
        }
        let Some(asked) = &self.gpu else { return Ok(Cards::All) };
        let gpus = text.map(str::parse::<NodeGpus>).transpose();
        let gpus = gpus.map_err(|error| TargetError::Unreadable {
            node: name(),
            problem: error.to_string(),
        })?;
        let known = gpus.unwrap_or_default().0;
        let matching: Vec<NodeGpu> =
            known.iter().filter(|gpu| is_named(gpu, asked)).cloned().collect();
        match matching.as_slice() {
            [] => Err(TargetError::Unknown { node: name(), asked: asked.clone(), known }),
            [one] => match one.uuid.parse() {
                Ok(uuid) => Ok(Cards::One { uuid, index: one.index }),
                Err(_) => Err(TargetError::Unknown { node: name(), asked: asked.clone(), known }),
            },
            _ => Err(TargetError::Ambiguous { node: name(), asked: asked.clone(), matching }),
        }
    }
}

/// A number is an index and nothing else: UUIDs begin with letters.
fn is_named(gpu: &NodeGpu, asked: &str) -> bool {
    match asked.parse::<u32>() {
        Ok(index) => gpu.index == index,
        Err(_) => !asked.is_empty() && gpu.uuid.starts_with(asked),
    }
}

/// All cards that a node tells of.
pub(crate) fn known(node: &Node) -> Vec<GpuUuid> {
    let gpus = node.metadata.annotation(NODE_GPUS).and_then(|text| text.parse::<NodeGpus>().ok());
    gpus.unwrap_or_default().0.iter().filter_map(|gpu| gpu.uuid.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::wish::tests::node;

    fn meant(asked: &str) -> Result<Cards, String> {
        let Ok(target) = asked.parse::<Target>();
        target.cards(&node(&["GPU-0a1", "GPU-0a2"])).map_err(|error| error.to_string())
    }

    #[test]
    fn a_card_is_named_by_index_uuid_or_the_beginning_of_one() {
        let second = Ok(Cards::One { uuid: "GPU-0a2".parse().unwrap(), index: 1 });
        assert_eq!(meant("n1"), Ok(Cards::All));
        for asked in ["n1/1", "n1/GPU-0a2"] {
            assert_eq!(meant(asked), second, "{asked}");
        }
        assert!(matches!(meant("n1/GPU-0a1"), Ok(Cards::One { index: 0, .. })));
    }

    #[test]
    fn what_names_no_card_or_several_is_answered_with_what_there_is() {
        assert_eq!(
            meant("n1/2").unwrap_err(),
            "node `n1` has no GPU `2`; hint: it has 0 (`GPU-0a1`), 1 (`GPU-0a2`)"
        );
        assert_eq!(
            meant("n1/GPU-0").unwrap_err(),
            "several GPUs of node `n1` begin with `GPU-0`; hint: they are 0 (`GPU-0a1`), 1 \
             (`GPU-0a2`)"
        );
        assert!(meant("n1/").unwrap_err().contains("has no GPU ``"));
    }

    #[test]
    fn a_node_without_mpshare_is_told_as_such() {
        let target: Target = "n1".parse().unwrap();
        let error = target.cards(&Node::default()).unwrap_err().to_string();
        assert!(error.starts_with("node `n1` tells of no GPUs under mpshare"), "{error}");
    }
}
