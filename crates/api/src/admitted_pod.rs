//! A pod as admission reads it: all that can change what a container gets of a GPU.
//!
//! Taken from a request of the API server, and of anybody who asks the webhook. Keys that aren't here
//! don't count; `null` is as good as absent, as Go writes it.

use std::collections::BTreeMap;

use mpshare_core::ResourceName;
use mpshare_core::admission::{
    Amount, Container, EnvVar, List, Place, Requirement, Rule, Subject, Term, Value, Volume,
};
use mpshare_core::ledger::Stage;
use serde::Deserialize;

use crate::names::GPU_COUNT;
use crate::pod::{OURS, Resources, nullable};

/// A pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct AdmittedPod {
    #[serde(deserialize_with = "nullable")]
    metadata: Metadata,
    #[serde(deserialize_with = "nullable")]
    spec: Spec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Metadata {
    #[serde(deserialize_with = "nullable")]
    labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "nullable")]
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    scheduler_name: Option<String>,
    node_name: Option<String>,
    #[serde(deserialize_with = "nullable")]
    node_selector: BTreeMap<String, String>,
    #[serde(deserialize_with = "nullable")]
    affinity: Affinity,
    host_users: Option<bool>,
    #[serde(deserialize_with = "nullable")]
    security_context: SecurityContext,
    #[serde(deserialize_with = "nullable")]
    volumes: Vec<VolumeSpec>,
    #[serde(deserialize_with = "nullable")]
    init_containers: Vec<ContainerSpec>,
    #[serde(deserialize_with = "nullable")]
    containers: Vec<ContainerSpec>,
    #[serde(deserialize_with = "nullable")]
    ephemeral_containers: Vec<ContainerSpec>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Affinity {
    #[serde(deserialize_with = "nullable")]
    node_affinity: NodeAffinity,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct NodeAffinity {
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "nullable"
    )]
    required: NodeSelector,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NodeSelector {
    #[serde(deserialize_with = "nullable")]
    node_selector_terms: Vec<NodeTerm>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NodeTerm {
    #[serde(deserialize_with = "nullable")]
    match_expressions: Vec<Expression>,
    #[serde(deserialize_with = "nullable")]
    match_fields: Vec<Expression>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Expression {
    #[serde(deserialize_with = "nullable")]
    key: String,
    #[serde(deserialize_with = "nullable")]
    operator: String,
    #[serde(deserialize_with = "nullable")]
    values: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SecurityContext {
    run_as_user: Option<i64>,
    privileged: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct VolumeSpec {
    #[serde(deserialize_with = "nullable")]
    name: String,
    host_path: Option<HostPath>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct HostPath {
    #[serde(deserialize_with = "nullable")]
    path: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ContainerSpec {
    #[serde(deserialize_with = "nullable")]
    name: String,
    restart_policy: Option<String>,
    #[serde(deserialize_with = "nullable")]
    resources: Resources,
    #[serde(deserialize_with = "nullable")]
    env: Vec<Variable>,
    #[serde(deserialize_with = "nullable")]
    env_from: Vec<serde::de::IgnoredAny>,
    #[serde(deserialize_with = "nullable")]
    volume_mounts: Vec<VolumeMount>,
    #[serde(deserialize_with = "nullable")]
    security_context: SecurityContext,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Variable {
    #[serde(deserialize_with = "nullable")]
    name: String,
    #[serde(deserialize_with = "nullable")]
    value: String,
    value_from: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct VolumeMount {
    #[serde(deserialize_with = "nullable")]
    mount_path: String,
}

impl AdmittedPod {
    /// What the rules look at. Beside our own resources those are ours that configs have given other
    /// names.
    pub fn subject<'a, I>(&self, others: I) -> Subject
    where
        I: IntoIterator<Item = &'a ResourceName>,
    {
        let own = OURS.into_iter().filter_map(|name| name.parse().ok());
        let mut ours: Vec<ResourceName> = own.collect();
        for name in others {
            if !ours.contains(name) {
                ours.push(name.clone());
            }
        }
        let spec = &self.spec;
        let init = spec.init_containers.iter().enumerate().map(|(position, container)| {
            let is_sidecar = container.restart_policy.as_deref() == Some("Always");
            let stage = if is_sidecar { Stage::Sidecar } else { Stage::Init };
            container.subject(List::Init, position, stage, &ours)
        });
        let main = spec.containers.iter().enumerate();
        let main = main.map(|(position, it)| it.subject(List::Main, position, Stage::Main, &ours));
        let late = spec.ephemeral_containers.iter().enumerate();
        let late =
            late.map(|(position, it)| it.subject(List::Ephemeral, position, Stage::Main, &ours));
        let present = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        Subject {
            scheduler: present(&spec.scheduler_name),
            node: present(&spec.node_name),
            node_selector: spec.node_selector.clone(),
            node_terms: spec.affinity.node_affinity.required.terms(),
            has_own_users: spec.host_users == Some(false),
            user: spec.security_context.run_as_user,
            gpu_count: self.metadata.labels.get(GPU_COUNT).cloned(),
            volumes: spec.volumes.iter().map(VolumeSpec::named).collect(),
            containers: init.chain(main).chain(late).collect(),
        }
    }

    /// Its annotations.
    pub fn annotations(&self) -> &BTreeMap<String, String> {
        &self.metadata.annotations
    }
}

impl NodeSelector {
    fn terms(&self) -> Vec<Term> {
        let all = |expressions: &[Expression]| {
            expressions.iter().map(Expression::requirement).collect::<Vec<_>>()
        };
        let terms = self.node_selector_terms.iter();
        terms
            .map(|term| Term {
                labels: all(&term.match_expressions),
                fields: all(&term.match_fields),
            })
            .collect()
    }
}

impl Expression {
    fn requirement(&self) -> Requirement {
        let number = || self.values.first().and_then(|text| text.parse().ok());
        let rule = match self.operator.as_str() {
            "In" => Rule::In(self.values.clone()),
            "NotIn" => Rule::NotIn(self.values.clone()),
            "Exists" => Rule::Exists,
            "DoesNotExist" => Rule::DoesNotExist,
            "Gt" => number().map_or(Rule::Unreadable, Rule::Gt),
            "Lt" => number().map_or(Rule::Unreadable, Rule::Lt),
            _ => Rule::Unreadable,
        };
        Requirement { key: self.key.clone(), rule }
    }
}

impl VolumeSpec {
    fn named(&self) -> (String, Volume) {
        let host = self.host_path.as_ref().map(|it| Volume::HostPath(it.path.clone()));
        (self.name.clone(), host.unwrap_or(Volume::Other))
    }
}

impl ContainerSpec {
    fn subject(
        &self,
        list: List,
        position: usize,
        stage: Stage,
        ours: &[ResourceName],
    ) -> Container {
        let asked = ours.iter().filter_map(|resource| {
            Some(Amount {
                resource: resource.clone(),
                units: self.resources.amount(resource.as_str())?,
                text: self.resources.text(resource.as_str())?,
            })
        });
        let env = self.env.iter().map(|it| EnvVar {
            name: it.name.clone(),
            value: match it.value_from {
                Some(_) => Value::Elsewhere,
                None => Value::Text(it.value.clone()),
            },
        });
        Container {
            name: self.name.clone(),
            place: Place { list, position, has_env: !self.env.is_empty() },
            stage,
            asked: asked.collect(),
            env: env.collect(),
            has_env_from: !self.env_from.is_empty(),
            mounts: self.volume_mounts.iter().map(|it| it.mount_path.clone()).collect(),
            is_privileged: self.security_context.privileged == Some(true),
            user: self.security_context.run_as_user,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn all_that_counts_is_read_and_null_is_as_good_as_absent() {
        let pod: AdmittedPod = serde_json::from_value(json!({
            "metadata": {"labels": {"aliyun.com/gpu-count": "2"}, "annotations": null},
            "spec": {
                "schedulerName": "", "nodeName": null, "hostUsers": false,
                "securityContext": {"runAsUser": 1000, "privileged": null},
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [
                        {"key": "a", "operator": "Gt", "values": ["7"]},
                        {"key": "b", "operator": "Is", "values": null},
                    ]}],
                }}},
                "volumes": [{"name": "h", "hostPath": {"path": "/dev"}}, {"name": "e", "emptyDir": {}}],
                "initContainers": [{"name": "s", "restartPolicy": "Always"}],
                "containers": [{
                    "name": "c", "resources": {"limits": {"aliyun.com/gpu-mem": "10G", "cpu": "1"}},
                    "env": [{"name": "A"}, {"name": "B", "valueFrom": {"fieldRef": {}}}],
                    "envFrom": [{"configMapRef": {"name": "m"}}],
                    "volumeMounts": [{"name": "e", "mountPath": "/dev/shm", "readOnly": true}],
                    "securityContext": {"privileged": true},
                }],
                "ephemeralContainers": [{"name": "d"}],
            },
        }))
        .unwrap();
        insta::assert_debug_snapshot!(pod.subject([]));
    }

    #[test]
    fn the_rules_guard_the_annotations_that_are_written() {
        use crate::names;
        let written = [
            names::ALLOCATION,
            names::V1_INDEX,
            names::V1_POD,
            names::V1_DEVICE,
            names::V1_ASSIGNED,
            names::V1_ASSUME_TIME,
            names::V2_ALLOCATION,
            names::V2_ASSIGNED,
            names::V2_ASSUME_TIME,
        ];
        assert_eq!(mpshare_core::admission::OWN_ANNOTATIONS, written);
    }

    proptest! {
        #[test]
        fn any_body_is_read_or_refused(text in r#"[\[\]{}":,a-z0-9 ]{0,80}"#) {
            if let Ok(pod) = serde_json::from_str::<AdmittedPod>(&text) {
                drop(pod.subject([]));
            }
        }
    }
}
