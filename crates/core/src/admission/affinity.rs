//! Which nodes a pod may go to, by their labels.

use std::collections::BTreeMap;

use super::Subject;

/// A term of a required node affinity: all of its requirements have to be met.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Term {
    /// About labels.
    pub labels: Vec<Requirement>,
    /// About fields, of which there is one: `metadata.name`.
    pub fields: Vec<Requirement>,
}

/// A requirement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// Of which label or field.
    pub key: String,
    /// What its value has to be.
    pub rule: Rule,
}

/// What a value has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// One of these.
    In(Vec<String>),
    /// None of these; an absent one is none.
    NotIn(Vec<String>),
    /// There.
    Exists,
    /// Not there.
    DoesNotExist,
    /// A number above this one.
    Gt(i64),
    /// A number below this one.
    Lt(i64),
    /// Something that can't be read, which no node meets.
    Unreadable,
}

impl Rule {
    fn is_met_by(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::In(values) => value.is_some_and(|it| values.iter().any(|value| value == it)),
            Self::NotIn(values) => !value.is_some_and(|it| values.iter().any(|value| value == it)),
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
            Self::Gt(bound) => number().is_some_and(|number| number > *bound),
            Self::Lt(bound) => number().is_some_and(|number| number < *bound),
            Self::Unreadable => false,
        }
    }
}

impl Term {
    fn is_met_by(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        // A term without requirements is met by no node.
        (!self.labels.is_empty() || !self.fields.is_empty())
            && self
                .labels
                .iter()
                .all(|it| it.rule.is_met_by(labels.get(&it.key).map(String::as_str)))
            && self
                .fields
                .iter()
                .all(|it| it.rule.is_met_by((it.key == "metadata.name").then_some(name)))
    }
}

impl Subject {
    /// Whether the pod may go to a node, as far as names and labels say it.
    pub(super) fn may_go_to(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        if let Some(node) = &self.node {
            return node == name;
        }
        self.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value))
            && (self.node_terms.is_empty()
                || self.node_terms.iter().any(|term| term.is_met_by(name, labels)))
    }
}
