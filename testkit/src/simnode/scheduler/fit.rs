//! What kube-scheduler's own plugins say, as far as a one-node story needs it: node selector and
//! extended resources.
#![expect(
    clippy::indexing_slicing,
    reason = "indexing a JSON value yields null, it does not panic"
)]

use std::collections::BTreeMap;

use serde_json::Value;

/// Why a pod doesn't fit, in the words of the real scheduler's Event; `Ok` when it does. Resources in
/// `ignored` are counted by somebody else.
pub(super) fn fits(
    pod: &Value,
    node: &Value,
    pods: &[Value],
    ignored: &[&str],
) -> Result<(), String> {
    if node["spec"]["unschedulable"] == true {
        return Err("0/1 nodes are available: 1 node(s) were unschedulable.".to_owned());
    }
    let labels = &node["metadata"]["labels"];
    let selector = pod["spec"]["nodeSelector"].as_object();
    let is_selected = selector.is_none_or(|wanted| wanted.iter().all(|(k, v)| labels[k] == *v));
    if !is_selected {
        return Err(
            "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
                .to_owned(),
        );
    }
    let name = &node["metadata"]["name"];
    let mut used = BTreeMap::new();
    for other in pods.iter().filter(|other| other["spec"]["nodeName"] == *name && is_active(other))
    {
        for (resource, count) in requests(other) {
            *used.entry(resource).or_insert(0) += count;
        }
    }
    for (resource, count) in requests(pod) {
        if ignored.contains(&resource.as_str()) {
            continue;
        }
        let allocatable = number(&node["status"]["allocatable"][&resource]);
        if used.get(&resource).unwrap_or(&0) + count > allocatable {
            return Err(format!("0/1 nodes are available: 1 Insufficient {resource}."));
        }
    }
    Ok(())
}

fn is_active(pod: &Value) -> bool {
    !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Extended resources: the larger of all app containers together and each init container.
fn requests(pod: &Value) -> BTreeMap<String, u64> {
    let mut total = BTreeMap::new();
    for limits in containers(pod, "containers") {
        for (resource, count) in limits {
            *total.entry(resource).or_insert(0) += count;
        }
    }
    for limits in containers(pod, "initContainers") {
        for (resource, count) in limits {
            let most = total.entry(resource).or_insert(0);
            *most = (*most).max(count);
        }
    }
    total
}

fn containers<'a>(pod: &'a Value, field: &str) -> impl Iterator<Item = BTreeMap<String, u64>> + 'a {
    let containers = pod["spec"][field].as_array().into_iter().flatten();
    containers.map(|container| {
        let limits = container["resources"]["limits"].as_object().into_iter().flatten();
        limits
            .filter(|(resource, _)| resource.contains('/'))
            .map(|(resource, count)| (resource.clone(), number(count)))
            .collect()
    })
}

fn number(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(0)
}
