//! What clients ask before they ask for objects: versions, groups, kinds, and enough `OpenAPI`.
//!
//! kubectl reads `OpenAPI` only to learn whether the server checks fields itself
//! (`fieldValidation`); with that parameter listed it sends objects without a schema at hand.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::resource::{ResourceType, Scope, StatusRule};

/// The version that the server claims; the oldest whose API this project relies on is 1.28.
const VERSION: (&str, &str, &str) = ("1", "33", "v1.33.0");

/// The answer to a discovery path, if it is one.
pub(crate) fn answer(cluster: &Cluster, path: &str) -> Option<Value> {
    let resources = cluster.resources();
    match path.trim_end_matches('/') {
        "/version" => Some(version()),
        "/api" => Some(json!({"kind": "APIVersions", "versions": ["v1"]})),
        "/apis" => Some(groups(&resources)),
        "/openapi/v3" => Some(openapi_index(&resources)),
        path => {
            if let Some(api) = path.strip_prefix("/openapi/v3/") {
                return openapi(&resources, api);
            }
            let api_version = path.strip_prefix("/apis/").or(match path {
                "/api/v1" => Some("v1"),
                _ => None,
            })?;
            resource_list(&resources, api_version).or_else(|| group(&resources, api_version))
        }
    }
}

fn version() -> Value {
    let (major, minor, git_version) = VERSION;
    json!({
        "major": major,
        "minor": minor,
        "gitVersion": git_version,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "linux/amd64",
    })
}

fn groups(resources: &[Arc<ResourceType>]) -> Value {
    let names: BTreeSet<&str> =
        resources.iter().map(|r| r.group.as_str()).filter(|group| !group.is_empty()).collect();
    let groups: Vec<Value> = names.iter().filter_map(|name| group(resources, name)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn group(resources: &[Arc<ResourceType>], name: &str) -> Option<Value> {
    let versions: BTreeSet<&str> =
        resources.iter().filter(|r| r.group == name).map(|r| r.version.as_str()).collect();
    let form =
        |version: &str| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    let preferred = form(versions.iter().next()?);
    let versions: Vec<Value> = versions.into_iter().map(form).collect();
    Some(json!({
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": name,
        "versions": versions,
        "preferredVersion": preferred,
    }))
}

fn resource_list(resources: &[Arc<ResourceType>], api_version: &str) -> Option<Value> {
    let entries: Vec<Value> = resources
        .iter()
        .filter(|r| r.api_version() == api_version)
        .flat_map(|r| entries(r))
        .collect();
    (!entries.is_empty()).then(|| {
        json!({
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": api_version,
            "resources": entries,
        })
    })
}

fn entries(resource: &ResourceType) -> Vec<Value> {
    let namespaced = resource.scope == Scope::Namespaced;
    let mut main = json!({
        "name": resource.plural,
        "singularName": resource.kind.to_lowercase(),
        "namespaced": namespaced,
        "kind": resource.kind,
        "verbs": [
            "create", "delete", "deletecollection", "get", "list", "patch", "update", "watch",
        ],
    });
    for (field, names) in
        [("shortNames", &resource.short_names), ("categories", &resource.categories)]
    {
        if let (Some(fields), false) = (main.as_object_mut(), names.is_empty()) {
            fields.insert(field.to_owned(), names.clone().into());
        }
    }
    let mut all = vec![main];
    if resource.status != StatusRule::Absent {
        all.push(json!({
            "name": format!("{}/status", resource.plural),
            "singularName": "",
            "namespaced": namespaced,
            "kind": resource.kind,
            "verbs": ["get", "patch", "update"],
        }));
    }
    for (name, api_version, kind) in resource.extra_subresources() {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        all.push(json!({
            "name": format!("{}/{name}", resource.plural),
            "singularName": "",
            "namespaced": namespaced,
            "group": group,
            "version": version,
            "kind": kind,
            "verbs": if *name == "log" { ["get"] } else { ["create"] },
        }));
    }
    all
}

/// `v1` is under `api/`, everything else under `apis/`.
fn root(api_version: &str) -> String {
    if api_version.contains('/') {
        format!("apis/{api_version}")
    } else {
        format!("api/{api_version}")
    }
}

fn openapi_index(resources: &[Arc<ResourceType>]) -> Value {
    let paths: BTreeMap<String, Value> = resources
        .iter()
        .map(|r| {
            let root = root(&r.api_version());
            let url = format!("/openapi/v3/{root}");
            (root, json!({"serverRelativeURL": url}))
        })
        .collect();
    json!({"paths": paths})
}

fn openapi(resources: &[Arc<ResourceType>], api: &str) -> Option<Value> {
    let paths: BTreeMap<String, Value> = resources
        .iter()
        .filter(|r| root(&r.api_version()) == api)
        .map(|r| {
            let place = match r.scope {
                Scope::Namespaced => "namespaces/{namespace}/",
                Scope::Cluster => "",
            };
            let path = format!("/{api}/{place}{}/{{name}}", r.plural);
            (path, patch_operation(r))
        })
        .collect();
    (!paths.is_empty()).then(|| {
        json!({
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": VERSION.2},
            "paths": paths,
        })
    })
}

fn patch_operation(resource: &ResourceType) -> Value {
    let parameter = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
    json!({"patch": {
        "operationId": format!("patch{}", resource.kind),
        "parameters": [parameter("dryRun"), parameter("fieldValidation")],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": {
            "group": resource.group,
            "version": resource.version,
            "kind": resource.kind,
        },
    }})
}
