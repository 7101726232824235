//! Values that the server fills in when they are left out.
//!
//! Only those that somebody reads: a pod's phase, `QoS` class, grace period and requests, a
//! namespace's phase and name label, and what kubectl's rollout commands look at.

use serde_json::{Map, Value, json};

use super::object::{Object, as_map};
use super::resource::ResourceType;

/// Fills in the defaults of the object's kind.
pub(crate) fn fill(resource: &ResourceType, object: &mut Object) {
    if resource.is_core("pods") {
        pod(object);
    } else if resource.is_core("namespaces") {
        let name = object.name().to_owned();
        let labels = as_map(object.metadata_mut().entry("labels").or_insert(Value::Null));
        labels.insert("kubernetes.io/metadata.name".to_owned(), name.into());
        object.fields_mut().insert("status".to_owned(), json!({"phase": "Active"}));
    } else if resource.group == "apps" {
        workload(resource, object);
    }
}

fn workload(resource: &ResourceType, object: &mut Object) {
    match resource.plural.as_str() {
        "daemonsets" => {
            rollout(object, "updateStrategy", &json!({"maxUnavailable": 1, "maxSurge": 0}));
        }
        "deployments" => {
            object.section_mut("spec").entry("replicas").or_insert(json!(1));
            rollout(object, "strategy", &json!({"maxUnavailable": "25%", "maxSurge": "25%"}));
        }
        _ => {}
    }
}

fn rollout(object: &mut Object, strategy: &str, rolling: &Value) {
    let spec = object.section_mut("spec");
    spec.entry("revisionHistoryLimit").or_insert(json!(10));
    spec.entry(strategy).or_insert(json!({"type": "RollingUpdate", "rollingUpdate": rolling}));
}

fn pod(object: &mut Object) {
    let spec = object.section_mut("spec");
    let defaults = [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("enableServiceLinks", json!(true)),
        ("securityContext", json!({})),
    ];
    for (field, value) in defaults {
        spec.entry(field).or_insert(value);
    }
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        containers.into_iter().flatten().for_each(container);
    }
    let class = qos_class(spec);
    let status = json!({"phase": "Pending", "qosClass": class});
    object.fields_mut().insert("status".to_owned(), status);
}

fn container(container: &mut Value) {
    let fields = as_map(container);
    let tagged = fields.get("image").and_then(Value::as_str).is_some_and(|image| {
        image.contains('@')
            || image
                .rsplit('/')
                .next()
                .is_some_and(|last| last.split_once(':').is_some_and(|(_, tag)| tag != "latest"))
    });
    let policy = if tagged { "IfNotPresent" } else { "Always" };
    fields.entry("imagePullPolicy").or_insert(json!(policy));
    fields.entry("terminationMessagePath").or_insert(json!("/dev/termination-log"));
    fields.entry("terminationMessagePolicy").or_insert(json!("File"));
    let resources = as_map(fields.entry("resources").or_insert(Value::Null));
    // Limits without requests are requests too: extended resources are always written so.
    if let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() {
        let requests = as_map(resources.entry("requests").or_insert(Value::Null));
        for (name, amount) in limits {
            requests.entry(name).or_insert(amount);
        }
    }
}

fn qos_class(spec: &Map<String, Value>) -> &'static str {
    let amounts = |container: &Value, side: &str| {
        let of = |name: &str| container.pointer(&format!("/resources/{side}/{name}")).cloned();
        (of("cpu"), of("memory"))
    };
    let containers: Vec<&Value> = ["containers", "initContainers"]
        .iter()
        .filter_map(|list| spec.get(*list)?.as_array())
        .flatten()
        .collect();
    let nothing = (None, None);
    if containers
        .iter()
        .all(|c| amounts(c, "limits") == nothing && amounts(c, "requests") == nothing)
    {
        return "BestEffort";
    }
    let guaranteed = containers.iter().all(|c| {
        let limits = amounts(c, "limits");
        limits.0.is_some() && limits.1.is_some() && limits == amounts(c, "requests")
    });
    if guaranteed { "Guaranteed" } else { "Burstable" }
}
