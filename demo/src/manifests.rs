//! The YAML files under `examples/`, applied as they are.

use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow};
use mpshare_testkit::fakekube::FakeKube;
use serde_json::{Value, json};

/// Creates the object of a file, in the namespace `default` unless it names one.
pub(crate) async fn apply(kube: &FakeKube, file: &str) -> Result<Value> {
    let object = read(file)?;
    kube.create(object).await.with_context(|| format!("can't create `{file}`"))
}

/// Creates the Job of a file, and what the Job controller, which isn't there, makes of it: one pod
/// from its template. Returns the pod's name.
pub(crate) async fn apply_job(kube: &FakeKube, file: &str) -> Result<String> {
    let job = apply(kube, file).await?;
    let job_name = text(&job, "/metadata/name")?;
    let template = |part: &str| job.pointer(&format!("/spec/template/{part}")).cloned();
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": template("metadata").unwrap_or_else(|| json!({})), "spec": template("spec"),
    });
    let owner = json!({
        "apiVersion": "batch/v1", "kind": "Job", "controller": true,
        "name": job_name, "uid": job.pointer("/metadata/uid"),
    });
    if let Some(metadata) = pod.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        metadata.insert("generateName".to_owned(), json!(format!("{job_name}-")));
        metadata.insert("ownerReferences".to_owned(), json!([owner]));
    }
    let pod = kube.create(pod).await.with_context(|| format!("can't create a pod of `{file}`"))?;
    text(&pod, "/metadata/name")
}

fn text(object: &Value, pointer: &str) -> Result<String> {
    let text = object.pointer(pointer).and_then(Value::as_str);
    text.map(str::to_owned).with_context(|| format!("no `{pointer}`"))
}

fn read(file: &str) -> Result<Value> {
    let path = folder().join(file);
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("can't read `{}`", path.display()))?;
    serde_saphyr::from_str(&text)
        .map_err(|error| anyhow!("`{}` is no YAML: {error}", path.display()))
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../examples")
}
