//! The scheduler extender: by which kube-scheduler it is asked, and who can reach it.

use std::process::Command;

use mpshare_api::extender::{BIND, FILTER, PREFIX, PRIORITIZE};
use mpshare_api::names::{GPU_RESOURCE, MEMORY_RESOURCE};
use mpshare_e2e::chart::{PROGRAMS, Rendering};
use serde_json::{Value, json};

use super::{chart, refusal, repository, with};

const EXTENDER: &str = "mpshare-scheduler-extender";

/// The configuration of the second scheduler.
fn config(rendering: &Rendering) -> Value {
    let map = rendering.find("ConfigMap", "mpshare-scheduler").unwrap();
    serde_saphyr::from_str(map["data"]["config.yaml"].as_str().unwrap()).unwrap()
}

fn args(rendering: &Rendering, container: &str) -> Vec<String> {
    serde_json::from_value(rendering.container(container).unwrap()["args"].clone()).unwrap()
}

/// What must be true of every configuration that names our extender.
#[track_caller]
fn is_what_the_extender_serves(config: &Value, port: u16) {
    let extender = &config["extenders"][0];
    assert_eq!(extender["urlPrefix"], format!("http://127.0.0.1:{port}{PREFIX}"));
    for (key, verb) in [("filterVerb", FILTER), ("bindVerb", BIND)] {
        assert_eq!(extender[key], verb, "{key}");
    }
    assert_eq!(extender["nodeCacheCapable"], true, "whole nodes would be sent");
    assert_eq!(extender["ignorable"], Value::Null, "pods would be bound without a GPU");
    let managed =
        |name: &str, is_ignored: bool| json!({"name": name, "ignoredByScheduler": is_ignored});
    assert_eq!(
        extender["managedResources"],
        json!([managed(MEMORY_RESOURCE, true), managed(GPU_RESOURCE, false)])
    );
}

#[test]
fn the_second_scheduler_asks_for_what_the_extender_serves_where_it_listens() {
    let Some(chart) = chart() else { return };
    let rendering = with(&chart, &["scheduler.port=4000", "namespaceOverride=gpu"]).unwrap();
    let config = config(&rendering);
    is_what_the_extender_serves(&config, 4000);
    assert!(args(&rendering, EXTENDER).contains(&"--listen=127.0.0.1:4000".to_owned()));
    assert_eq!(config["profiles"][0]["schedulerName"], "mpshare-scheduler");
    assert_eq!(config["percentageOfNodesToScore"], 100);

    let lease = &config["leaderElection"];
    assert_eq!(lease["resourceNamespace"], "gpu");
    let role = rendering.find("Role", "mpshare-scheduler").unwrap();
    assert_eq!(role["metadata"]["namespace"], "gpu");
    assert_eq!(role["rules"][0]["resourceNames"], json!([lease["resourceName"]]));
}

/// Scores come from one of the two: the scheduler's own plugin looks at the resource, or the extender
/// is asked.
#[test]
fn nodes_are_scored_by_the_scheduler_or_by_the_extender() {
    let Some(chart) = chart() else { return };
    let own = config(&with(&chart, &[]).unwrap());
    assert_eq!(own["extenders"][0]["prioritizeVerb"], Value::Null);
    let strategy = &own["profiles"][0]["pluginConfig"][0]["args"]["scoringStrategy"];
    assert_eq!(strategy["type"], "MostAllocated");
    let named = [MEMORY_RESOURCE, GPU_RESOURCE].map(|name| json!({"name": name, "weight": 1}));
    assert_eq!(strategy["resources"], json!(named));

    let asked = config(&with(&chart, &["scheduler.nodeScores=extender"]).unwrap());
    assert_eq!(asked["profiles"], json!([{"schedulerName": "mpshare-scheduler"}]));
    assert_eq!(asked["extenders"][0]["prioritizeVerb"], PRIORITIZE);
    let said = refusal(&chart, &["scheduler.nodeScores=both"]);
    assert!(said.contains("nodeScores"), "{said}");
}

/// What `bench extender --cluster` measures is what the chart installs, but for the names and for
/// kube-scheduler's own limits.
#[test]
fn the_bench_measures_the_second_schedulers_configuration() {
    let Some(chart) = chart() else { return };
    let rendered = config(&with(&chart, &[]).unwrap());
    let text = super::file("e2e/cluster/bench-second-scheduler.yaml");
    let mut measured: Value = serde_saphyr::from_str(&text.replace("{kubeconfig}", "k")).unwrap();
    assert_eq!(measured["profiles"][0]["schedulerName"], "default-scheduler");
    measured["profiles"][0]["schedulerName"] = "mpshare-scheduler".into();
    for key in ["profiles", "extenders", "percentageOfNodesToScore"] {
        assert_eq!(measured[key], rendered[key], "{key}");
    }
}

/// The file of docs/memory-mode.md for the cluster's own scheduler.
#[test]
fn the_documented_configuration_asks_for_the_same() {
    let Some(chart) = chart() else { return };
    let page = super::file("docs/memory-mode.md");
    let start = "apiVersion: kubescheduler.config.k8s.io/v1\n";
    let text = page.split_once(start).unwrap().1.split("```").next().unwrap();
    let documented: Value = serde_saphyr::from_str(&format!("{start}{text}")).unwrap();
    is_what_the_extender_serves(&documented, 39999);
    let rendered = config(&with(&chart, &["scheduler.nodeScores=extender"]).unwrap());
    assert_eq!(documented["extenders"], rendered["extenders"]);
    assert_eq!(documented["percentageOfNodesToScore"], rendered["percentageOfNodesToScore"]);
    let alone = with(&chart, &["scheduler.mode=extender"]).unwrap();
    assert!(args(&alone, EXTENDER).contains(&"--listen=127.0.0.1:39999".to_owned()));
}

#[test]
fn only_the_loopback_can_bind() {
    let Some(chart) = chart() else { return };
    for mode in ["scheduler.mode=second", "scheduler.mode=extender"] {
        let rendering = with(&chart, &[mode]).unwrap();
        let listens = args(&rendering, EXTENDER);
        assert!(listens.iter().any(|word| word.starts_with("--listen=127.0.0.1:")), "{listens:?}");
        let container = rendering.container(EXTENDER).unwrap();
        let named = container["ports"].to_string();
        assert!(!named.contains("39999"), "{named}");
    }
    let second = with(&chart, &[]).unwrap();
    let pod = &second.find("Deployment", "mpshare-scheduler").unwrap()["spec"]["template"]["spec"];
    assert_eq!(pod["hostNetwork"], Value::Null, "the loopback would be everybody's on the node");
    for service in second.of_kind("Service") {
        let component = &service["spec"]["selector"]["app.kubernetes.io/component"];
        assert_eq!(component, "webhook", "a Service would let others bind pods");
    }
}

#[test]
fn the_scheduler_has_the_clusters_version_whatever_a_cloud_calls_it() {
    let Some(chart) = chart() else { return };
    for (cluster, image) in [
        ("v1.34.4", "registry.k8s.io/kube-scheduler:v1.34.4"),
        ("v1.30.5-gke.1443001", "registry.k8s.io/kube-scheduler:v1.30.5"),
        ("v1.31.2+k3s1", "registry.k8s.io/kube-scheduler:v1.31.2"),
    ] {
        let rendering = chart.render(&["--kube-version", cluster]).unwrap();
        assert_eq!(rendering.container("kube-scheduler").unwrap()["image"], image);
    }
    let mirrored = ["scheduler.image.repository=r.example/ks", "scheduler.image.tag=v1.33.1"];
    let rendering = with(&chart, &mirrored).unwrap();
    assert_eq!(rendering.container("kube-scheduler").unwrap()["image"], "r.example/ks:v1.33.1");
}

#[test]
fn a_scheduler_goes_only_when_another_is_ready_and_each_is_asked_whether_it_is() {
    let Some(chart) = chart() else { return };
    let rendering = with(&chart, &[]).unwrap();
    let deployment = &rendering.find("Deployment", "mpshare-scheduler").unwrap()["spec"];
    assert_eq!(deployment["replicas"], 2);
    assert_eq!(
        deployment["strategy"]["rollingUpdate"],
        json!({"maxSurge": 1, "maxUnavailable": 0})
    );
    let budget = &rendering.find("PodDisruptionBudget", "mpshare-scheduler").unwrap()["spec"];
    assert_eq!(budget["selector"], deployment["selector"]);
    let probe =
        |name: &str| rendering.container(name).unwrap()["readinessProbe"]["httpGet"].clone();
    assert_eq!(probe("kube-scheduler")["scheme"], "HTTPS");
    assert_eq!(probe(EXTENDER)["path"], "/readyz");
    let ports = &rendering.container(EXTENDER).unwrap()["ports"];
    assert_eq!(ports[0]["name"], probe(EXTENDER)["port"]);
    let status = format!("--status-listen=[::]:{}", ports[0]["containerPort"]);
    assert!(args(&rendering, EXTENDER).contains(&status));
}

#[test]
fn a_changed_configuration_replaces_the_scheduler_and_nothing_else_does() {
    let Some(chart) = chart() else { return };
    let digest = |values: &[&str]| {
        let rendering = with(&chart, values).unwrap();
        let deployment = rendering.find("Deployment", "mpshare-scheduler").unwrap();
        deployment["spec"]["template"]["metadata"]["annotations"].clone()
    };
    assert_ne!(digest(&[]), digest(&["scheduler.port=4000"]));
    assert_eq!(digest(&[]), digest(&["mps.replicas=2", "scheduler.replicas=3"]));
}

#[test]
fn the_extender_alone_is_beside_each_scheduler_of_the_control_plane_with_its_own_rights_only() {
    let Some(chart) = chart() else { return };
    let rendering = with(&chart, &["scheduler.mode=extender"]).unwrap();
    let set = rendering.find("DaemonSet", EXTENDER).unwrap();
    let pod = &set["spec"]["template"]["spec"];
    assert_eq!(pod["hostNetwork"], true);
    assert_eq!(pod["nodeSelector"], json!({"node-role.kubernetes.io/control-plane": ""}));
    assert!(pod["tolerations"].to_string().contains("node-role.kubernetes.io/control-plane"));
    assert!(!rendering.text.contains("system:kube-scheduler"));
    for probe in ["livenessProbe", "readinessProbe"] {
        let asked = &rendering.container(EXTENDER).unwrap()[probe]["httpGet"];
        assert_eq!(asked["host"], "127.0.0.1", "the node's other addresses don't answer");
    }
    assert!(rendering.find("Deployment", "mpshare-scheduler").is_none());
}

#[test]
fn where_nothing_is_shared_or_nobody_wants_it_there_is_no_scheduler() {
    let Some(chart) = chart() else { return };
    for values in [&["scheduler.mode=none"][..], &["mps.enabled=false"]] {
        let rendering = with(&chart, values).unwrap();
        let is_ours = |object: &Value| object["metadata"]["name"].to_string().contains("scheduler");
        let kinds = ["Deployment", "DaemonSet", "ConfigMap", "ServiceAccount", "ClusterRole"];
        let left =
            kinds.into_iter().flat_map(|kind| rendering.of_kind(kind)).find(|it| is_ours(it));
        assert_eq!(left, None, "{values:?}");
        assert!(!rendering.text.contains("--scheduler-name"), "{values:?}");
    }
}

#[test]
fn a_monitor_is_made_when_it_is_asked_for() {
    let Some(chart) = chart() else { return };
    assert_eq!(with(&chart, &[]).unwrap().of_kind("PodMonitor").count(), 0);
    let rendering = with(&chart, &["scheduler.podMonitor=true"]).unwrap();
    let monitor = rendering.find("PodMonitor", "mpshare-scheduler").unwrap();
    assert_eq!(monitor["spec"]["podMetricsEndpoints"][0]["port"], "status");
}

#[test]
fn a_scheduler_that_can_not_be_is_refused() {
    let Some(chart) = chart() else { return };
    for (values, word) in [
        (&["scheduler.statusPort=39999"][..], "scheduler.statusPort"),
        (&["scheduler.mode=none", "scheduler.podMonitor=true"], "scheduler.podMonitor"),
    ] {
        let sentence = refusal(&chart, values);
        assert!(sentence.contains(word) && sentence.contains("hint: "), "{sentence}");
    }
    // YAML's `off`.
    let sentence = refusal(&chart, &["scheduler.mode=false"]);
    assert!(sentence.contains("'/scheduler/mode'") && sentence.contains("none"), "{sentence}");
    assert!(refusal(&chart, &["scheduler.replicas=0"]).contains("'/scheduler/replicas'"));
}

/// The real kube-scheduler reads the configuration strictly, and says what it is with its defaults.
/// No server is asked for that.
#[test]
fn a_real_scheduler_takes_the_configuration_and_the_arguments() {
    let Some(chart) = chart() else { return };
    let built = std::env::var_os(PROGRAMS).map(std::path::PathBuf::from);
    let dir = built.unwrap_or_else(|| repository().join("target/e2e/bin"));
    let program = dir.join("kube-scheduler");
    if !program.is_file() {
        println!("skipped: no kube-scheduler (build it with e2e/cluster/build)");
        return;
    }
    let rendering = with(&chart, &[]).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    let nowhere = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a"}}],
    });
    std::fs::write(path("nowhere"), nowhere.to_string()).unwrap();
    let mut told = config(&rendering);
    told["clientConnection"] = json!({"kubeconfig": path("nowhere")});
    std::fs::write(path("config"), told.to_string()).unwrap();
    let mut arguments = args(&rendering, "kube-scheduler");
    arguments[0] = format!("--config={}", path("config").display());
    arguments.push(format!("--write-config-to={}", path("read").display()));
    // Nothing has to listen for it.
    arguments.push("--secure-port=0".to_owned());
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read: Value =
        serde_saphyr::from_str(&std::fs::read_to_string(path("read")).unwrap()).unwrap();
    assert_eq!(read["leaderElection"]["resourceName"], "mpshare-scheduler");
    assert_eq!(read["extenders"][0]["httpTimeout"], "5s");
    assert_eq!(read["extenders"][0]["managedResources"].as_array().unwrap().len(), 2);
}
