//! Strategic merge patch: a merge patch that knows which lists are maps by a key.
//!
//! The keys come from the `patchMergeKey` tags of the API types. A list that isn't in the table is
//! atomic: the patch replaces it (tolerations and taints are like that in the real server too).

use serde_json::{Map, Value};

use super::object::as_map;

/// Applies a patch to an object in place.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    match patch {
        Value::Object(patch) => merge_map(as_map(target), patch),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            *target = patch.clone();
        }
    }
}

fn merge_map(target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            target.clear();
        }
        Some("delete") => {
            target.clear();
            return;
        }
        _ => {}
    }
    if let Some(kept) = patch.get("$retainKeys").and_then(Value::as_array) {
        target.retain(|key, _| kept.iter().any(|k| k == key));
    }
    for (field, value) in patch {
        if let Some(list) = field.strip_prefix("$deleteFromPrimitiveList/") {
            remove_items(target, list, value);
        } else if !field.starts_with('$') {
            merge_field(target, field, value);
        }
    }
    for (field, order) in patch {
        if let Some(list) = field.strip_prefix("$setElementOrder/") {
            reorder(target, list, order);
        }
    }
}

fn merge_field(target: &mut Map<String, Value>, field: &str, patch: &Value) {
    match patch {
        Value::Null => {
            target.remove(field);
        }
        Value::Object(patch) => {
            merge_map(as_map(target.entry(field).or_insert(Value::Null)), patch);
        }
        Value::Array(items) => {
            let list = target.entry(field).or_insert(Value::Array(Vec::new()));
            if !list.is_array() {
                *list = Value::Array(Vec::new());
            }
            if let Value::Array(list) = list {
                merge_list(list, field, items);
            }
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            target.insert(field.to_owned(), patch.clone());
        }
    }
}

fn merge_list(list: &mut Vec<Value>, field: &str, patch: &[Value]) {
    if patch.iter().any(|item| directive(item) == Some("replace")) {
        *list = patch.iter().filter(|item| directive(item).is_none()).cloned().collect();
        return;
    }
    if matches!(field, "finalizers" | "podCIDRs") {
        let fresh: Vec<Value> = patch.iter().filter(|i| !list.contains(i)).cloned().collect();
        list.extend(fresh);
        return;
    }
    let Some(key) = merge_key(field, patch.first().or(list.first())) else {
        *list = patch.to_vec();
        return;
    };
    for item in patch {
        let id = item.get(key);
        let position = list.iter().position(|old| old.get(key) == id);
        match (directive(item), position) {
            (Some("delete"), Some(at)) => {
                list.remove(at);
            }
            (Some("delete"), None) => {}
            (_, Some(at)) => {
                if let Some(old) = list.get_mut(at) {
                    merge(old, item);
                }
            }
            (_, None) => {
                let mut fresh = Value::Null;
                merge(&mut fresh, item);
                list.push(fresh);
            }
        }
    }
}

fn directive(item: &Value) -> Option<&str> {
    item.get("$patch")?.as_str()
}

/// The key by which a list is merged, or nothing where it is atomic.
fn merge_key(field: &str, sample: Option<&Value>) -> Option<&'static str> {
    Some(match field {
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "volumes"
        | "env"
        | "imagePullSecrets"
        | "secrets"
        | "schedulingGates"
        | "resourceClaims" => "name",
        "conditions" | "addresses" => "type",
        "volumeMounts" => "mountPath",
        "volumeDevices" => "devicePath",
        "hostAliases" | "podIPs" | "hostIPs" => "ip",
        "topologySpreadConstraints" => "topologyKey",
        "ownerReferences" => "uid",
        // A container's ports and a service's ports have different keys.
        "ports" if sample.is_some_and(|port| port.get("containerPort").is_some()) => {
            "containerPort"
        }
        "ports" => "port",
        _ => return None,
    })
}

fn remove_items(target: &mut Map<String, Value>, field: &str, items: &Value) {
    let Some(items) = items.as_array() else {
        return;
    };
    if let Some(list) = target.get_mut(field).and_then(Value::as_array_mut) {
        list.retain(|item| !items.contains(item));
    }
}

/// Puts the named items into the order that the client wants; others keep their place after them.
fn reorder(target: &mut Map<String, Value>, field: &str, order: &Value) {
    let Some(order) = order.as_array() else {
        return;
    };
    let Some(list) = target.get_mut(field).and_then(Value::as_array_mut) else {
        return;
    };
    let key = merge_key(field, list.first());
    let rank = |item: &Value| {
        let wanted = |entry: &Value| match key {
            Some(key) => entry.get(key) == item.get(key),
            None => entry == item,
        };
        order.iter().position(wanted).unwrap_or(usize::MAX)
    };
    list.sort_by_key(rank);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check([mut target, patch, expected]: [Value; 3]) {
        merge(&mut target, &patch);
        assert_eq!(target, expected);
    }

    #[test]
    fn conditions_merge_by_type() {
        check([
            json!({"conditions": [{"type": "Ready", "status": "True", "reason": "r"}]}),
            json!({"conditions": [{"type": "Ready", "status": "False"}, {"type": "New"}]}),
            json!({"conditions": [{"type": "Ready", "status": "False", "reason": "r"}, {"type": "New"}]}),
        ]);
    }

    #[test]
    fn a_delete_directive_removes_one_item_of_a_keyed_list() {
        check([
            json!({"env": [{"name": "a"}, {"name": "b"}]}),
            json!({"env": [{"name": "a", "$patch": "delete"}]}),
            json!({"env": [{"name": "b"}]}),
        ]);
    }

    #[test]
    fn tolerations_are_replaced_as_a_whole() {
        check([
            json!({"tolerations": [{"key": "a"}]}),
            json!({"tolerations": [{"key": "b"}]}),
            json!({"tolerations": [{"key": "b"}]}),
        ]);
    }

    #[test]
    fn nested_lists_inside_a_keyed_item_merge_too() {
        check([
            json!({"containers": [{"name": "c", "ports": [{"containerPort": 1}], "image": "i"}]}),
            json!({"containers": [{"name": "c", "ports": [{"containerPort": 2}]}]}),
            json!({"containers": [{"name": "c", "image": "i",
                "ports": [{"containerPort": 1}, {"containerPort": 2}]}]}),
        ]);
    }

    #[test]
    fn the_order_and_removal_directives_of_kubectl_work() {
        check([
            json!({"env": [{"name": "a"}], "finalizers": ["x", "y"]}),
            json!({"$setElementOrder/env": [{"name": "b"}, {"name": "a"}], "env": [{"name": "b"}],
                "$deleteFromPrimitiveList/finalizers": ["x"]}),
            json!({"env": [{"name": "b"}, {"name": "a"}], "finalizers": ["y"]}),
        ]);
    }
}
