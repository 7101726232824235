//! The rules of ARCHITECTURE.md that a compiler doesn't check.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::build::{cargo, root};

/// The longest that a file of the product may be.
const MAX_LINES: usize = 500;

/// What each product package may use of the workspace. Arrows point down only; what isn't listed
/// is an error, so that a new package has to take its place here.
const ARROWS: [(&str, &[&str]); 18] = [
    ("mpshare-core", &[]),
    ("mpshare-api", &["mpshare-core"]),
    ("jsonpath-rust", &[]),
    ("mpshare-kubelet", &["mpshare-api"]),
    ("mpshare-nvml", &["mpshare-core"]),
    ("mpshare-cuda", &[]),
    ("mpshare-mps", &["mpshare-core", "mpshare-api"]),
    ("mpshare-telemetry", &[]),
    ("mpshare-watch", &["mpshare-telemetry"]),
    (
        "mpshare-supervisor",
        &["mpshare-core", "mpshare-api", "mpshare-mps", "mpshare-nvml", "mpshare-watch"],
    ),
    (
        "mpshare-device-plugin",
        &["mpshare-core", "mpshare-api", "mpshare-kubelet", "mpshare-telemetry", "mpshare-watch"],
    ),
    (
        "mpshare-config-manager",
        &["mpshare-core", "mpshare-api", "mpshare-telemetry", "mpshare-watch"],
    ),
    ("mpshare-uninstall", &["mpshare-api", "mpshare-telemetry"]),
    ("mpshare-scheduler", &["mpshare-core", "mpshare-api", "mpshare-telemetry"]),
    ("mpshare-webhook", &["mpshare-core", "mpshare-api", "mpshare-telemetry"]),
    (
        "mpshare",
        &[
            "mpshare-core",
            "mpshare-api",
            "mpshare-nvml",
            "mpshare-cuda",
            "mpshare-mps",
            "mpshare-telemetry",
            "mpshare-supervisor",
            "mpshare-device-plugin",
            "mpshare-config-manager",
            "mpshare-uninstall",
            "mpshare-scheduler",
            "mpshare-webhook",
            "mpshare-kubeconfig",
        ],
    ),
    ("mpshare-kubeconfig", &["mpshare-api"]),
    ("mpshare-kubectl", &["mpshare-core", "mpshare-api", "mpshare-kubeconfig"]),
];

/// External packages that only one package may name.
const ONE_USER: [(&str, &str); 5] = [
    ("inotify", "mpshare-watch"),
    ("nvml-wrapper", "mpshare-nvml"),
    ("prost", "mpshare-kubelet"),
    ("tonic-prost", "mpshare-kubelet"),
    ("serde-saphyr", "mpshare-api"),
];

/// What `core` may depend on, tests aside.
const CORE_MAY_USE: [&str; 1] = ["thiserror"];

/// Checks all rules and prints every violation.
pub(crate) fn run() -> Result<ExitCode> {
    let mut violations = Vec::new();
    arrows(&mut violations)?;
    long_files(&mut violations)?;
    module_docs(&mut violations)?;
    fuzz_targets(&mut violations)?;
    for violation in &violations {
        println!("tidy: {violation}");
    }
    anyhow::ensure!(violations.is_empty(), "{} violations", violations.len());
    Ok(ExitCode::SUCCESS)
}

fn arrows(violations: &mut Vec<String>) -> Result<()> {
    let output = cargo()
        .args(["metadata", "--format-version=1", "--no-deps"])
        .output()
        .context("can't run cargo metadata")?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    for package in list(&metadata, "packages") {
        let name = text(package, "name");
        let normal: Vec<&str> = list(package, "dependencies")
            .iter()
            .filter(|dependency| dependency.get("kind").is_none_or(Value::is_null))
            .map(|dependency| text(dependency, "name"))
            .collect();
        let is_product = text(package, "manifest_path").contains("/crates/");
        check_package(name, is_product, &normal, violations);
    }
    Ok(())
}

fn check_package(name: &str, is_product: bool, uses: &[&str], violations: &mut Vec<String>) {
    let allowed = ARROWS.iter().find(|(package, _)| *package == name).map(|(_, may)| *may);
    if is_product && allowed.is_none() {
        violations.push(format!("`{name}` has no place in the arrows of xtask/src/tidy.rs"));
    }
    let ours = uses.iter().filter(|used| used.starts_with("mpshare"));
    for used in ours.filter(|used| allowed.is_some_and(|may| !may.contains(used))) {
        violations.push(format!("`{name}` must not depend on `{used}`"));
    }
    for (package, user) in ONE_USER {
        if is_product && uses.contains(&package) && name != user {
            violations.push(format!("`{name}` must not name `{package}`, only `{user}` does"));
        }
    }
    if name == "mpshare-core" {
        for used in uses.iter().filter(|used| !CORE_MAY_USE.contains(used)) {
            violations.push(format!("`mpshare-core` must stay pure, but depends on `{used}`"));
        }
    }
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn long_files(violations: &mut Vec<String>) -> Result<()> {
    for path in rust_files(&root().join("crates"))? {
        let lines = fs::read_to_string(&path)?.lines().count();
        if lines > MAX_LINES {
            let path = relative(&path);
            violations.push(format!("{path} has {lines} lines, more than {MAX_LINES}"));
        }
    }
    Ok(())
}

fn module_docs(violations: &mut Vec<String>) -> Result<()> {
    for folder in ["crates", "sim", "testkit", "demo", "e2e", "xtask", "fuzz/targets"] {
        for path in rust_files(&root().join(folder))? {
            let is_test_file = path.ends_with("tests.rs")
                || path.components().any(|part| part.as_os_str() == "tests");
            if !is_test_file && !fs::read_to_string(&path)?.starts_with("//!") {
                violations.push(format!("{} doesn't say what it is for (`//!`)", relative(&path)));
            }
            if path.ends_with("mod.rs") {
                violations.push(format!("{} should be beside its folder", relative(&path)));
            }
        }
    }
    Ok(())
}

/// Every target is built, and begins with something.
fn fuzz_targets(violations: &mut Vec<String>) -> Result<()> {
    let fuzz = root().join("fuzz");
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).context("fuzz/Cargo.toml")?;
    for path in rust_files(&fuzz.join("targets"))? {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if !manifest.contains(&format!("path = \"targets/{name}.rs\"")) {
            violations.push(format!("fuzz/Cargo.toml has no `[[bin]]` for `{name}`"));
        }
        let corpus = fuzz.join("corpus").join(&name);
        if fs::read_dir(corpus).map_or(0, Iterator::count) == 0 {
            violations.push(format!("fuzz/corpus/{name} has no file to begin with"));
        }
    }
    Ok(())
}

fn rust_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| relative(&folder))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations(name: &str, uses: &[&str]) -> Vec<String> {
        let mut violations = Vec::new();
        check_package(name, true, uses, &mut violations);
        violations
    }

    #[test]
    fn an_arrow_that_points_up_is_a_violation() {
        assert!(violations("mpshare-api", &["mpshare-core"]).is_empty());
        assert_eq!(violations("mpshare-api", &["mpshare-supervisor"]).len(), 1);
        assert_eq!(violations("mpshare-core", &["tokio"]).len(), 1);
        assert_eq!(violations("mpshare-new", &[]).len(), 1);
        assert_eq!(violations("mpshare-mps", &["nvml-wrapper"]).len(), 1);
        assert_eq!(violations("mpshare-supervisor", &["mpshare-testkit"]).len(), 1);
    }
}
