//! Tables as the server prints them for `kubectl get`.

use serde_json::{Value, json};

use super::identity::seconds_since;
use super::object::Object;
use super::resource::ResourceType;

/// One column: its heading, whether only `-o wide` shows it, and the cell of an object.
struct Column {
    name: &'static str,
    priority: u8,
    cell: fn(&Object) -> Value,
}

/// A `meta.k8s.io/v1` Table of objects; `included` makes the `object` of each row.
pub(crate) fn table(
    resource: &ResourceType,
    metadata: &Value,
    objects: &[&Object],
    included: impl Fn(&Object) -> Value,
) -> Value {
    let columns = columns(resource);
    let definitions: Vec<Value> = columns
        .iter()
        .map(|column| {
            json!({
                "name": column.name,
                "type": "string",
                "format": if column.name == "Name" { "name" } else { "" },
                "description": "",
                "priority": column.priority,
            })
        })
        .collect();
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let cells: Vec<Value> = columns.iter().map(|column| (column.cell)(object)).collect();
            let mut row = serde_json::Map::new();
            row.insert("cells".to_owned(), cells.into());
            let object = included(object);
            if !object.is_null() {
                row.insert("object".to_owned(), object);
            }
            Value::Object(row)
        })
        .collect();
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": definitions,
        "rows": rows,
    })
}

const NAME: Column = Column { name: "Name", priority: 0, cell: |o| o.name().into() };
const AGE: Column = Column { name: "Age", priority: 0, cell: age };

fn columns(resource: &ResourceType) -> Vec<Column> {
    let middle = match resource.plural.as_str() {
        "pods" => pod_columns(),
        "nodes" => return node_columns(),
        "daemonsets" => daemon_set_columns(),
        "events" => return event_columns(),
        "configmaps" | "secrets" => {
            vec![shown("Data", |o| count(o, "/data").into())]
        }
        "namespaces" => vec![shown("Status", |o| text(o, "/status/phase"))],
        "deployments" => vec![
            shown("Ready", |o| {
                let ready = number(o, "/status/readyReplicas");
                format!("{ready}/{}", number(o, "/spec/replicas")).into()
            }),
            shown("Up-to-date", |o| number(o, "/status/updatedReplicas").into()),
            shown("Available", |o| number(o, "/status/availableReplicas").into()),
        ],
        "leases" => vec![shown("Holder", |o| text(o, "/spec/holderIdentity"))],
        _ => Vec::new(),
    };
    // Wide columns come after the age.
    let (wide, plain): (Vec<_>, Vec<_>) = middle.into_iter().partition(|c| c.priority > 0);
    std::iter::once(NAME).chain(plain).chain([AGE]).chain(wide).collect()
}

fn shown(name: &'static str, cell: fn(&Object) -> Value) -> Column {
    Column { name, priority: 0, cell }
}

fn wide(name: &'static str, cell: fn(&Object) -> Value) -> Column {
    Column { name, priority: 1, cell }
}

fn pod_columns() -> Vec<Column> {
    vec![
        shown("Ready", |o| {
            let ready = statuses(o).filter(|s| s.get("ready") == Some(&true.into())).count();
            format!("{ready}/{}", count(o, "/spec/containers")).into()
        }),
        shown("Status", |o| pod_status(o).into()),
        shown("Restarts", |o| {
            let restarts = statuses(o).filter_map(|s| s.get("restartCount")?.as_i64());
            restarts.sum::<i64>().into()
        }),
        wide("IP", |o| text(o, "/status/podIP")),
        wide("Node", |o| text(o, "/spec/nodeName")),
        wide("Nominated Node", |o| text(o, "/status/nominatedNodeName")),
        wide("Readiness Gates", |_| "<none>".into()),
    ]
}

fn node_columns() -> Vec<Column> {
    vec![
        NAME,
        shown("Status", |o| node_status(o).into()),
        shown("Roles", |o| node_roles(o).into()),
        AGE,
        shown("Version", |o| text(o, "/status/nodeInfo/kubeletVersion")),
        wide("Internal-IP", |o| text(o, "/status/addresses/0/address")),
        wide("OS-Image", |o| text(o, "/status/nodeInfo/osImage")),
        wide("Kernel-Version", |o| text(o, "/status/nodeInfo/kernelVersion")),
        wide("Container-Runtime", |o| text(o, "/status/nodeInfo/containerRuntimeVersion")),
    ]
}

fn daemon_set_columns() -> Vec<Column> {
    vec![
        shown("Desired", |o| number(o, "/status/desiredNumberScheduled").into()),
        shown("Current", |o| number(o, "/status/currentNumberScheduled").into()),
        shown("Ready", |o| number(o, "/status/numberReady").into()),
        shown("Up-to-date", |o| number(o, "/status/updatedNumberScheduled").into()),
        shown("Available", |o| number(o, "/status/numberAvailable").into()),
    ]
}

fn event_columns() -> Vec<Column> {
    vec![
        shown("Last Seen", |o| {
            let when = ["/series/lastObservedTime", "/lastTimestamp", "/eventTime"];
            let when = when.iter().find_map(|pointer| o.text(pointer));
            duration(when.or(o.text("/metadata/creationTimestamp"))).into()
        }),
        shown("Type", |o| text(o, "/type")),
        shown("Reason", |o| text(o, "/reason")),
        shown("Object", |o| {
            let part = |pointer| o.text(pointer).unwrap_or_default();
            let kind = part("/involvedObject/kind").to_lowercase();
            format!("{kind}/{}", part("/involvedObject/name")).into()
        }),
        shown("Message", |o| text(o, "/message")),
        wide("Name", |o| o.name().into()),
    ]
}

fn pod_status(pod: &Object) -> String {
    if pod.is_terminating() {
        return "Terminating".to_owned();
    }
    let waiting = statuses(pod).find_map(|status| {
        let state = status.get("state")?;
        let reason = |state: &Value| state.get("reason")?.as_str().map(str::to_owned);
        state.get("waiting").and_then(reason).or_else(|| state.get("terminated").and_then(reason))
    });
    waiting
        .or_else(|| pod.text("/status/reason").map(str::to_owned))
        .or_else(|| pod.text("/status/phase").map(str::to_owned))
        .unwrap_or_else(|| "Unknown".to_owned())
}

fn node_status(node: &Object) -> String {
    let conditions = node.value().pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions
        .into_iter()
        .flatten()
        .find(|c| c.get("type").and_then(Value::as_str) == Some("Ready"))
        .and_then(|c| c.get("status")?.as_str());
    let mut words = vec![match ready {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }];
    if node.value().pointer("/spec/unschedulable") == Some(&true.into()) {
        words.push("SchedulingDisabled");
    }
    words.join(",")
}

fn node_roles(node: &Object) -> String {
    let labels = node.value().pointer("/metadata/labels").and_then(Value::as_object);
    let roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/"))
        .collect();
    if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") }
}

fn statuses(pod: &Object) -> impl Iterator<Item = &Value> {
    let list = pod.value().pointer("/status/containerStatuses").and_then(Value::as_array);
    list.into_iter().flatten()
}

fn text(object: &Object, pointer: &str) -> Value {
    object.text(pointer).filter(|text| !text.is_empty()).unwrap_or("<none>").into()
}

fn number(object: &Object, pointer: &str) -> i64 {
    object.number(pointer).unwrap_or(0)
}

fn count(object: &Object, pointer: &str) -> usize {
    match object.value().pointer(pointer) {
        Some(Value::Object(map)) => map.len(),
        Some(Value::Array(list)) => list.len(),
        _ => 0,
    }
}

fn age(object: &Object) -> Value {
    duration(object.text("/metadata/creationTimestamp")).into()
}

/// The time since a timestamp, in kubectl's short form with at most two units.
fn duration(since: Option<&str>) -> String {
    let Some(seconds) = since.and_then(seconds_since) else {
        return "<unknown>".to_owned();
    };
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |big: i64, unit: char, small: i64, small_unit: char| match small {
        0 => format!("{big}{unit}"),
        _ => format!("{big}{unit}{small}{small_unit}"),
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, 'd', hours % 24, 'h'),
        _ => format!("{days}d"),
    }
}
