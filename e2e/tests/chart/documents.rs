//! What is written beside the chart: its README, notes, the plain manifests, the Dockerfile.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::Path;

use mpshare_e2e::chart::{Rendering, manifests_of};
use serde_json::Value;

use super::{chart, file, repository, with};

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&file(path)).unwrap()
}

#[test]
fn lint_finds_no_fault() {
    let Some(chart) = chart() else { return };
    chart.lint().unwrap();
}

#[test]
fn the_plain_manifests_are_what_the_chart_renders() {
    let Some(chart) = chart() else { return };
    let path = manifests_of(repository());
    let rendered = chart.manifests().unwrap();
    if env::var_os("MPSHARE_UPDATE").is_some() {
        fs::write(&path, &rendered).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap();
    assert!(
        written == rendered,
        "{} isn't what the chart renders; run this test with MPSHARE_UPDATE=1",
        path.display()
    );
    let read = Rendering::read(written).unwrap();
    assert_eq!(read.objects.len(), with(&chart, &[]).unwrap().objects.len());
}

/// A new version of the chart with the same image restarts nothing.
#[test]
fn the_charts_version_alone_changes_no_pod() {
    let Some(chart) = chart() else { return };
    let dir = tempfile::tempdir().unwrap();
    copy(chart.dir(), dir.path());
    let about = dir.path().join("Chart.yaml");
    let text = fs::read_to_string(&about).unwrap();
    fs::write(&about, text.replacen("version: ", "version: 9", 1)).unwrap();
    let values = ["image.tag=same"];
    let pods = |rendering: &Rendering| -> Vec<Value> {
        let templates = rendering.objects.iter().map(|object| object["spec"]["template"].clone());
        templates.filter(Value::is_object).collect()
    };
    let (old, new) =
        (with(&chart, &values).unwrap(), with(&chart.at(dir.path()), &values).unwrap());
    assert_ne!(old.objects, new.objects);
    assert_eq!(pods(&old), pods(&new));
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, target) = entry.map(|entry| (entry.path(), to.join(entry.file_name()))).unwrap();
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

/// Helm shows notes only to who installs into a cluster; as a template they are shown to all.
#[test]
fn the_notes_have_the_documents_commands_and_name_what_has_no_effect() {
    let Some(chart) = chart() else { return };
    let dir = tempfile::tempdir().unwrap();
    copy(chart.dir(), dir.path());
    let templates = dir.path().join("templates");
    let notes = fs::read_to_string(templates.join("NOTES.txt")).unwrap();
    let wrapped = format!(
        "{{{{- define \"notes\" }}}}{notes}{{{{ end -}}}}\nkind: Notes\nmetadata: {{name: notes}}\n\
         text: {{{{ include \"notes\" . | toJson }}}}\n"
    );
    fs::write(templates.join("notes.yaml"), wrapped).unwrap();
    let chart = chart.at(dir.path());
    let notes = |values: &[&str]| {
        let rendering = with(&chart, values).unwrap();
        rendering.find("Notes", "notes").unwrap()["text"].as_str().unwrap().to_owned()
    };
    let text = notes(&[
        "gfd.enabled=true",
        "failOnInitError=true",
        "deviceDiscoveryStrategy=nvml",
        "allowDefaultNamespace=true",
        "mps.replicas=3",
    ]);
    for part in [
        "the config `mps-3x`",
        "kubectl get ds nvidia-device-plugin-daemonset -n kube-system",
        "kubectl get ds nvidia-mps-control-daemon -n kube-system",
        "kubectl get pod -n kube-system -l qcloud-app=nvidia-device-plugin-daemonset",
        "kubectl get pod -n kube-system -l qcloud-app=nvidia-mps-control-daemon",
        "without effect: failOnInitError, deviceDiscoveryStrategy, allowDefaultNamespace, gfd.enabled.",
        "schedulerName: mpshare-scheduler",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    let off = notes(&["mps.enabled=false"]);
    assert!(off.contains("MPS is off") && !off.contains("mps-control-daemon"), "{off}");
    assert!(!off.contains("without effect"), "{off}");
    assert!(!off.contains("scheduler"), "{off}");
    let extender = notes(&["scheduler.mode=extender"]);
    assert!(extender.contains("docs/memory-mode.md"), "{extender}");
}

/// `mps.enabled`, `names.devicePlugin`, ...: down to the first value that isn't a section.
fn names(values: &Value, sections: &BTreeSet<String>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (key, value) in values.as_object().unwrap() {
        if sections.contains(key) {
            let below = value.as_object().unwrap().keys();
            found.extend(below.map(|below| format!("{key}.{below}")));
        } else {
            found.insert(key.clone());
        }
    }
    found
}

/// The sections of the schema: objects that take certain keys only.
fn sections(schema: &Value) -> BTreeSet<String> {
    let properties = schema["properties"].as_object().unwrap();
    let is_section = |value: &Value| value["properties"].is_object();
    properties.iter().filter(|(_, value)| is_section(value)).map(|(key, _)| key.clone()).collect()
}

#[test]
fn every_value_is_in_the_schema_and_in_the_readme_and_nothing_else_is() {
    let schema: Value =
        serde_json::from_str(&file("deploy/helm/mpshare/values.schema.json")).unwrap();
    let sections = sections(&schema);
    let in_values = names(&yaml("deploy/helm/mpshare/values.yaml"), &sections);

    let mut properties = schema["properties"].clone();
    for section in &sections {
        properties[section] = schema["properties"][section]["properties"].clone();
    }
    let mut in_schema = names(&properties, &sections);
    assert!(in_schema.remove("global"), "Helm gives `global` to every part of a larger chart");
    assert_eq!(in_values, in_schema);

    // Rows of its tables begin with the names of values.
    let readme = file("deploy/helm/mpshare/README.md");
    let rows = readme.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let in_readme: BTreeSet<String> =
        rows.flat_map(|cell| cell.split(", ")).map(|name| name.replace('`', "")).collect();
    assert_eq!(in_values, in_readme);
}

#[test]
fn the_chart_has_the_version_of_the_workspace() {
    let about = yaml("deploy/helm/mpshare/Chart.yaml");
    assert_eq!(about["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(about["appVersion"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_dockerfile_builds_with_the_repositorys_toolchain_from_paths_that_exist() {
    let dockerfile = file("deploy/Dockerfile");
    let toolchain = file("rust-toolchain.toml");
    let channel = toolchain.lines().find_map(|line| line.strip_prefix("channel = ")).unwrap();
    let rust = format!("FROM rust:{}-", channel.trim_matches('"'));
    assert!(dockerfile.lines().any(|line| line.starts_with(&rust)), "no {rust}");
    let copied: Vec<&str> = dockerfile
        .lines()
        .filter_map(|line| line.strip_prefix("COPY "))
        .filter(|line| !line.starts_with("--from"))
        .flat_map(|line| line.rsplit_once(' ').unwrap().0.split(' '))
        .collect();
    assert!(!copied.is_empty());
    for path in copied {
        assert!(repository().join(path).exists(), "the Dockerfile copies `{path}`");
    }
    let chart = file("deploy/helm/mpshare/templates/scheduler.yaml");
    assert!(chart.contains("command: [/usr/bin/mpshare-scheduler-extender]"));
    let chart = file("deploy/helm/mpshare/templates/webhook.yaml");
    assert!(chart.contains("command: [/usr/bin/mpshare-webhook]"));
    let copies =
        "COPY --from=build /mpshare /mpshare-scheduler-extender /mpshare-webhook /usr/bin/";
    assert!(dockerfile.lines().any(|line| line == copies), "no `{copies}`");
}
