//! The YAML files under `examples/`, applied as they are.

use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow};
use mpshare_testkit::fakekube::FakeKube;
use serde_json::Value;

/// Creates the object of a file, in the namespace `default` unless it names one.
pub(crate) async fn apply(kube: &FakeKube, file: &str) -> Result<Value> {
    let path = folder().join(file);
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("can't read `{}`", path.display()))?;
    let object: Value = serde_saphyr::from_str(&text)
        .map_err(|error| anyhow!("`{}` is no YAML: {error}", path.display()))?;
    kube.create(object).await.with_context(|| format!("can't create `{file}`"))
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../examples")
}
