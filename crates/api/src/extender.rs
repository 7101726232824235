//! What kube-scheduler and its extender say to each other (facts/kubernetes.md 6.1), and the
//! answer to `inspect` that Aliyun's tools know (facts/aliyun-gpushare.md 2.2).
//!
//! Go's types have no tags, so that keys begin with a capital; old schedulers sent small letters.
//! Both are read, the capital form is written.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::pod::{Pod, nullable};

/// Where the scheduler's routes are below the extender's address: its `urlPrefix`.
pub const PREFIX: &str = "/gpushare-scheduler";
/// Its `filterVerb`.
pub const FILTER: &str = "filter";
/// Its `prioritizeVerb`.
pub const PRIORITIZE: &str = "prioritize";
/// Its `bindVerb`.
pub const BIND: &str = "bind";

/// The question of `filter` and `prioritize`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct FilterArgs<'a> {
    /// The pod.
    #[serde(rename = "Pod", alias = "pod")]
    pub pod: Option<Pod>,
    /// Whole nodes.
    #[serde(rename = "Nodes", alias = "nodes")]
    pub nodes: Option<NodeList>,
    /// Names of nodes.
    #[serde(rename = "NodeNames", alias = "nodeNames", alias = "nodenames", borrow)]
    pub node_names: Option<Vec<Name<'a>>>,
}

/// A node's name, as it stands in the text of a call: there are thousands in each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Name<'a>(pub Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(NameVisitor)
    }
}

struct NameVisitor;

impl<'de> Visitor<'de> for NameVisitor {
    type Value = Name<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a node's name")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Name(Cow::Borrowed(text)))
    }

    // One with an escape in it can't be borrowed.
    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Name(Cow::Owned(text.to_owned())))
    }
}

/// A list of whole nodes, which are given back as they came.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeList {
    /// The nodes.
    #[serde(alias = "Items", deserialize_with = "nullable")]
    pub items: Vec<Value>,
}

impl NodeList {
    /// The name of one of its nodes.
    pub fn name(node: &Value) -> &str {
        node.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
    }
}

/// The answer of `filter`.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct FilterResult<'a> {
    /// The nodes that are left, where whole nodes were given.
    pub nodes: Option<NodeList>,
    /// Their names, where names were given.
    pub node_names: Option<Vec<Name<'a>>>,
    /// Why the others aren't.
    pub failed_nodes: Failures<'a>,
    /// Those of them where no preemption can help.
    pub failed_and_unresolvable_nodes: Failures<'a>,
    /// Why there is no answer.
    pub error: String,
}

/// Why nodes have no room: name and sentence, which many nodes have in common.
#[derive(Debug, Clone, Default)]
pub struct Failures<'a>(pub Vec<(Name<'a>, Arc<str>)>);

impl Serialize for Failures<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(node, text)| (node, text.as_ref())))
    }
}

/// The score of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct HostPriority<'a> {
    /// The node.
    pub host: Name<'a>,
    /// 0 to 10.
    pub score: u8,
}

/// The question of `bind`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct BindingArgs {
    /// The pod's name.
    #[serde(
        rename = "PodName",
        alias = "podName",
        alias = "podname",
        deserialize_with = "nullable"
    )]
    pub pod_name: String,
    /// Its namespace.
    #[serde(
        rename = "PodNamespace",
        alias = "podNamespace",
        alias = "podnamespace",
        deserialize_with = "nullable"
    )]
    pub pod_namespace: String,
    /// Its UID.
    #[serde(
        rename = "PodUID",
        alias = "podUID",
        alias = "podUid",
        alias = "poduid",
        deserialize_with = "nullable"
    )]
    pub pod_uid: String,
    /// The node.
    #[serde(rename = "Node", alias = "node", deserialize_with = "nullable")]
    pub node: String,
}

/// The answer of `bind`.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct BindingResult {
    /// Why it failed; empty after a success.
    pub error: String,
}

/// The answer of `inspect`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Inspection {
    /// The nodes.
    pub nodes: Vec<InspectedNode>,
    /// Why there are none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error: String,
}

/// A node in `inspect`; amounts are units.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InspectedNode {
    /// Its name.
    pub name: String,
    /// All units.
    #[serde(rename = "totalGPU")]
    pub total: u64,
    /// Those that pods hold.
    #[serde(rename = "usedGPU")]
    pub used: u64,
    /// Its cards.
    pub devs: Vec<InspectedGpu>,
    /// Pods of which nothing says where they are; they count on every card.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unplaced: Vec<InspectedPod>,
    /// Why the cards aren't known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A card in `inspect`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InspectedGpu {
    /// Its index.
    pub id: u32,
    /// Its UUID.
    pub uuid: String,
    /// All units.
    #[serde(rename = "totalGPU")]
    pub total: u64,
    /// Those that pods hold.
    #[serde(rename = "usedGPU")]
    pub used: u64,
    /// The memory of a unit.
    #[serde(rename = "unitMiB")]
    pub unit_mib: u64,
    /// Why no new pod comes here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The pods.
    pub pods: Vec<InspectedPod>,
}

/// A pod in `inspect`.
#[derive(Debug, Clone, Serialize)]
pub struct InspectedPod {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its units.
    #[serde(rename = "usedGPU")]
    pub used: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn args(text: &str) -> FilterArgs<'_> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn both_cases_of_keys_and_null_are_read() {
        let capital = args(r#"{"Pod":{"metadata":{"name":"p"}},"Nodes":null,"NodeNames":["n"]}"#);
        let small = args(r#"{"pod":{"metadata":{"name":"p"}},"nodes":null,"nodenames":["n"]}"#);
        for args in [capital, small] {
            assert_eq!(args.pod.unwrap().metadata.name, "p");
            assert!(args.nodes.is_none());
            assert_eq!(args.node_names.unwrap(), [Name("n".into())]);
        }
        assert_eq!(args(r#"{"NodeNames":["\u006e"]}"#).node_names.unwrap(), [Name("n".into())]);
        assert!(args("{}").pod.is_none() && args(r#"{"Pod":null}"#).pod.is_none());
        let binding: BindingArgs =
            serde_json::from_str(r#"{"PodName":null,"poduid":"u","node":"n"}"#).unwrap();
        assert_eq!((binding.pod_name.as_str(), binding.pod_uid.as_str()), ("", "u"));
    }

    #[test]
    fn an_answer_has_every_key_that_go_has() {
        let text = serde_json::to_string(&FilterResult::default()).unwrap();
        assert_eq!(
            text,
            r#"{"Nodes":null,"NodeNames":null,"FailedNodes":{},"FailedAndUnresolvableNodes":{},"Error":""}"#
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in ".*") {
            drop(serde_json::from_str::<FilterArgs<'_>>(&text));
            drop(serde_json::from_str::<BindingArgs>(&text));
        }
    }
}
