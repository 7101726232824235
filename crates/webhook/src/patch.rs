//! Edits of a pod as a JSON patch (RFC 6902).
//!
//! Only what has to change is named, so that fields that this program doesn't know stay as they
//! are. A value is replaced only after a test that it still belongs to the variable that was meant:
//! another webhook may have been called in between.

use std::collections::BTreeSet;

use mpshare_core::admission::{Edit, List, Place};
use serde_json::{Value, json};

/// The operations that make these edits of a pod.
pub(crate) fn operations(pod: &Value, edits: &[Edit]) -> Vec<Value> {
    let mut operations = Vec::new();
    let mut begun = BTreeSet::new();
    for edit in edits {
        match edit {
            // `add` of a member that exists replaces it.
            Edit::SetScheduler(name) => {
                operations.push(json!({"op": "add", "path": "/spec/schedulerName", "value": name}));
            }
            Edit::SetEnv { at, index, name, value } => {
                operations.extend(set(pod, &format!("{}/{index}", variables(*at)), name, value));
            }
            Edit::AddEnv { at, name, value } => {
                let path = variables(*at);
                let variable = json!({"name": name, "value": value});
                let is_first = !at.has_env && begun.insert(path.clone());
                operations.push(if is_first {
                    json!({"op": "add", "path": path, "value": [variable]})
                } else {
                    json!({"op": "add", "path": format!("{path}/-"), "value": variable})
                });
            }
        }
    }
    operations
}

/// The new value of the variable at a path.
fn set(pod: &Value, path: &str, name: &str, value: &str) -> [Value; 2] {
    // An empty value is left out by clients.
    let has_value = pod.pointer(path).is_some_and(|it| it.get("value").is_some());
    let operation = if has_value { "replace" } else { "add" };
    [
        json!({"op": "test", "path": format!("{path}/name"), "value": name}),
        json!({"op": operation, "path": format!("{path}/value"), "value": value}),
    ]
}

/// The path of a container's variables.
fn variables(at: Place) -> String {
    format!("/spec/{}/{}/env", list_name(at.list), at.position)
}

/// The field of a list of containers.
const fn list_name(list: List) -> &'static str {
    match list {
        List::Init => "initContainers",
        List::Main => "containers",
        List::Ephemeral => "ephemeralContainers",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn place(list: List, position: usize, has_env: bool) -> Place {
        Place { list, position, has_env }
    }

    fn add(at: Place, name: &str) -> Edit {
        Edit::AddEnv { at, name: name.to_owned(), value: "1".to_owned() }
    }

    /// What a pod is after the edits.
    fn edited(mut pod: Value, edits: &[Edit]) -> Value {
        let patch: json_patch::Patch =
            serde_json::from_value(Value::Array(operations(&pod, edits))).unwrap();
        json_patch::patch(&mut pod, &patch).unwrap();
        pod
    }

    #[test]
    fn the_scheduler_is_set_whether_there_was_one_or_not() {
        let edits = [Edit::SetScheduler("gpu".to_owned())];
        for pod in [json!({"spec": {}}), json!({"spec": {"schedulerName": "default-scheduler"}})] {
            assert_eq!(edited(pod, &edits), json!({"spec": {"schedulerName": "gpu"}}));
        }
    }

    #[test]
    fn variables_are_added_to_an_empty_an_absent_and_a_filled_list() {
        let pod = json!({"spec": {
            "initContainers": [{"env": []}],
            "containers": [{"name": "a"}, {"env": [{"name": "X", "value": "y"}]}],
        }});
        let edits = [
            add(place(List::Init, 0, false), "A"),
            add(place(List::Main, 0, false), "A"),
            add(place(List::Main, 1, true), "A"),
            add(place(List::Main, 0, false), "B"),
        ];
        let variable = |name: &str| json!({"name": name, "value": "1"});
        assert_eq!(
            edited(pod, &edits),
            json!({"spec": {
                "initContainers": [{"env": [variable("A")]}],
                "containers": [
                    {"name": "a", "env": [variable("A"), variable("B")]},
                    {"env": [{"name": "X", "value": "y"}, variable("A")]},
                ],
            }})
        );
    }

    #[test]
    fn a_variable_is_set_only_where_it_still_is() {
        let pod = json!({"spec": {"containers": [
            {"env": [{"name": "A", "value": "0"}, {"name": "B", "unknown": 1}]},
        ]}});
        let at = place(List::Main, 0, true);
        let set = |index, name: &str| Edit::SetEnv {
            at,
            index,
            name: name.to_owned(),
            value: "9".to_owned(),
        };
        let done = edited(pod.clone(), &[set(0, "A"), set(1, "B")]);
        assert_eq!(
            done["spec"]["containers"][0]["env"],
            json!([{"name": "A", "value": "9"}, {"name": "B", "unknown": 1, "value": "9"}])
        );
        let patch = Value::Array(operations(&pod, &[set(0, "A")]));
        let patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
        let mut moved = json!({"spec": {"containers": [{"env": [{"name": "Z", "value": "0"}]}]}});
        assert!(json_patch::patch(&mut moved, &patch).is_err());
    }

    #[test]
    fn no_edits_are_no_operations() {
        assert!(operations(&json!({}), &[]).is_empty());
    }
}
