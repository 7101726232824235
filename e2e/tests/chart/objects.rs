//! What must be true of the rendered objects, whatever the values.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use mpshare_api::names;
use mpshare_e2e::chart::{Chart, Rendering};
use serde_json::Value;

use super::{chart, with};

const PLUGIN: &str = "nvidia-device-plugin-daemonset";
const MPS: &str = "nvidia-mps-control-daemon";

/// Sets of values that together reach every branch of the templates.
const MATRIX: &[&[&str]] = &[
    &[],
    &["mps.enabled=false"],
    &["mps.enabled=false", "resources.limits.memory=64Mi", "healthChecks.disable=all"],
    &["mps.replicas=7", "mps.programs=/opt/mps", "mps.enableHostNetwork=true"],
    &[
        "mps.default=mps-4x",
        "nvidiaDriverRoot=/run/nvidia/driver",
        "nvidiaDevRoot=/run/nvidia/driver",
    ],
    &["config.name=mine", "config.default=a", "config.fallbackStrategies={empty}"],
    &["config.map.a=version: v1", "deviceListStrategy={envvar,cdi-cri}", "deviceIDStrategy=index"],
    &["image.repository=r.example/mpshare", "image.tag=1", "imagePullSecrets[0].name=s"],
    &[
        "runtimeClassName=nvidia",
        "podLabels.a=b",
        "podAnnotations.c=d",
        "podSecurityContext.fsGroup=0",
    ],
    &["securityContext.runAsGroup=0", "updateStrategy.type=OnDelete", "nodeSelector.pool=gpu"],
    &["affinity=null", "tolerations=null", "ownNodeOnly=false", "namespaceOverride=gpu"],
    &["mps.root=/var/lib/mps", "kubeletRoot=/data/kubelet", "logs.format=json", "logs.level=debug"],
    &["healthChecks.disable=all", "healthChecks.enable=79", "names.devicePlugin=p"],
    &["devicePlugin.enableHostNetwork=true", "configManager.resources.limits.cpu=1"],
    &["scheduler.mode=none"],
    &["scheduler.mode=extender", "podLabels.a=b", "podAnnotations.c=d"],
    &["scheduler.mode=extender", "scheduler.nodeSelector.a=b", "imagePullSecrets[0].name=s"],
    &["scheduler.podMonitor=true", "scheduler.replicas=1", "scheduler.nodeSelector.a=b"],
    &[
        "scheduler.resources=null",
        "scheduler.extenderResources=null",
        "scheduler.tolerations=null",
        "scheduler.affinity.nodeAffinity.a=b",
    ],
];

/// The sets of GPU nodes.
fn sets_of_nodes(rendering: &Rendering) -> impl Iterator<Item = &Value> {
    rendering.of_kind("DaemonSet").filter(|set| set["metadata"]["labels"]["qcloud-app"].is_string())
}

/// Everything that has pods.
fn workloads(rendering: &Rendering) -> impl Iterator<Item = &Value> {
    rendering.objects.iter().filter(|object| object["spec"]["template"]["spec"].is_object())
}

/// All of them, rendered once for all tests.
fn renderings(chart: &Chart) -> &'static [(&'static [&'static str], Rendering)] {
    static RENDERED: OnceLock<Vec<(&[&str], Rendering)>> = OnceLock::new();
    let render = || MATRIX.iter().map(|values| (*values, with(chart, values).unwrap())).collect();
    RENDERED.get_or_init(render)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

fn pod(set: &Value) -> &Value {
    &set["spec"]["template"]["spec"]
}

fn environment<'a>(container: &'a Value, name: &str) -> Option<&'a str> {
    let variables = container["env"].as_array().unwrap();
    variables.iter().find(|variable| variable["name"] == name)?["value"].as_str()
}

#[test]
fn all_objects_have_a_name_of_their_own() {
    let Some(chart) = chart() else { return };
    for (values, rendering) in renderings(&chart) {
        let mut names = BTreeSet::new();
        for object in &rendering.objects {
            let metadata = &object["metadata"];
            let namespace = metadata["namespace"].as_str().unwrap_or_default();
            let name = (text(&object["kind"]), namespace, text(&metadata["name"]));
            assert!(!text(&object["apiVersion"]).is_empty());
            assert!(names.insert(name), "{values:?}: {name:?} twice");
        }
    }
}

#[test]
fn only_the_supervisor_has_privileges_and_nobody_the_hosts_ipc() {
    let Some(chart) = chart() else { return };
    for (values, rendering) in renderings(&chart) {
        assert!(!rendering.text.contains("hostIPC: true"), "{values:?}");
        for container in rendering.containers() {
            let context = &container["securityContext"];
            assert_eq!(context["readOnlyRootFilesystem"], true, "{values:?}");
            if container["name"] == "mps-control-daemon-ctr" {
                assert_eq!(context["privileged"], true);
                continue;
            }
            assert_eq!(context["privileged"], Value::Null, "{values:?}: {container}");
            assert_eq!(context["allowPrivilegeEscalation"], false);
            assert_eq!(context["capabilities"]["drop"][0], "ALL");
            assert_eq!(context["capabilities"]["add"], Value::Null);
        }
    }
}

#[test]
fn the_unprivileged_parts_get_no_card_from_the_runtime_where_a_supervisor_pod_runs() {
    let Some(chart) = chart() else { return };
    let rendering = with(&chart, &[]).unwrap();
    for name in ["nvidia-device-plugin-ctr", "config-manager-sidecar"] {
        let container = rendering.container(name).unwrap();
        assert_eq!(environment(container, "NVIDIA_VISIBLE_DEVICES"), Some("void"));
    }
    let supervisor = rendering.container("mps-control-daemon-ctr").unwrap();
    assert_eq!(environment(supervisor, "NVIDIA_VISIBLE_DEVICES"), Some("all"));
    assert_eq!(pod(rendering.find("DaemonSet", MPS).unwrap())["hostPID"], true);
    assert_eq!(pod(rendering.find("DaemonSet", PLUGIN).unwrap())["hostPID"], Value::Null);
}

#[test]
fn a_workload_selects_its_own_pods_and_not_the_other_ones() {
    let Some(chart) = chart() else { return };
    for (values, rendering) in renderings(&chart) {
        let sets: Vec<&Value> = workloads(rendering).collect();
        let selects = |set: &Value, other: &Value| {
            let labels = other["spec"]["template"]["metadata"]["labels"].as_object().unwrap();
            let selector = set["spec"]["selector"]["matchLabels"].as_object().unwrap();
            selector.iter().all(|(key, value)| labels.get(key) == Some(value))
        };
        for (i, set) in sets.iter().enumerate() {
            for (j, other) in sets.iter().enumerate() {
                assert_eq!(selects(set, other), i == j, "{values:?}: {i} and {j}");
            }
        }
    }
}

#[test]
fn the_documents_commands_find_the_pods() {
    let Some(chart) = chart() else { return };
    let rendering = with(&chart, &[]).unwrap();
    let label = |set: &str, key: &str| {
        let set = rendering.find("DaemonSet", set).unwrap();
        assert_eq!(set["metadata"]["namespace"], "kube-system");
        set["spec"]["template"]["metadata"]["labels"][key].clone()
    };
    assert_eq!(label(PLUGIN, "qcloud-app"), PLUGIN);
    assert_eq!(label(MPS, "qcloud-app"), MPS);
    assert_eq!(label(MPS, "app.aliyun.com/name"), "mps-control-daemon");
    assert_eq!(label(PLUGIN, "app.aliyun.com/name"), Value::Null);
}

#[test]
fn without_mps_there_is_no_daemonset_for_it_and_only_the_config_for_whole_cards() {
    let Some(chart) = chart() else { return };
    let rendering = with(&chart, &["mps.enabled=false", "mps.replicas=4"]).unwrap();
    assert_eq!(rendering.of_kind("DaemonSet").count(), 1);
    let configs = &rendering.find("ConfigMap", "nvidia-device-plugin-configs").unwrap()["data"];
    assert_eq!(configs.as_object().unwrap().keys().collect::<Vec<_>>(), ["mps-1x"]);
    let inventory = rendering.container("gpu-inventory-ctr").unwrap();
    assert_eq!(inventory["args"][0], "mps-control-daemon");
    assert!(!rendering.text.contains("--launch"));
}

#[test]
fn an_existing_config_map_is_named_everywhere_and_not_made() {
    let Some(chart) = chart() else { return };
    let rendering = with(&chart, &["config.name=mine"]).unwrap();
    assert!(rendering.find("ConfigMap", "nvidia-device-plugin-configs").is_none());
    let args = rendering.container("config-manager-sidecar").unwrap()["args"].to_string();
    assert!(args.contains("--config-map-name=mine"), "{args}");
    let rules = rendering.find("Role", "mpshare-config-manager").unwrap()["rules"].to_string();
    assert!(rules.contains(r#""resourceNames":["mine"]"#), "{rules}");
}

#[test]
fn rights_are_named_one_by_one() {
    let Some(chart) = chart() else { return };
    let rendering = with(&chart, &[]).unwrap();
    let roles: Vec<&Value> =
        ["Role", "ClusterRole"].iter().flat_map(|kind| rendering.of_kind(kind)).collect();
    let rules = roles.iter().filter_map(|role| role["rules"].as_array()).flatten();
    let mut granted: Vec<String> = rules
        .map(|rule| {
            let list = |key: &str| {
                let words = rule[key].as_array().into_iter().flatten().map(text);
                words.collect::<Vec<_>>().join(",")
            };
            format!("{} {} {}", list("verbs"), list("resources"), list("resourceNames"))
        })
        .collect();
    granted.sort();
    assert_eq!(
        granted,
        [
            "create events ",
            "create events ",
            "create pods/binding ",
            "get,list,watch configmaps nvidia-device-plugin-configs",
            "get,list,watch nodes ",
            "get,list,watch pods ",
            "get,patch mutatingwebhookconfigurations,validatingwebhookconfigurations mpshare",
            "get,update leases mpshare-scheduler",
            "get,update secrets mpshare-webhook-certificates",
            "list,watch nodes ",
            "list,watch nodes ",
            "list,watch pods ",
            "patch nodes/status ",
            "patch pods/status ",
        ]
    );
}

#[test]
fn annotations_are_written_with_the_status_and_the_policy_names_them() {
    let Some(chart) = chart() else { return };
    let policy = chart.render(&["--kube-version", "1.30.0"]).unwrap();
    let policy = policy.find("ValidatingAdmissionPolicy", "mpshare-own-node").unwrap().clone();
    assert_eq!(policy["spec"]["variables"][2]["name"], "own");
    let own = text(&policy["spec"]["variables"][2]["expression"]);
    assert_eq!(own, r#"["mpshare.io/gpus", "aliyun.com/gpu-count"]"#);
    let rules = &policy["spec"]["matchConstraints"]["resourceRules"];
    assert_eq!(rules[0]["resources"][0], "nodes/status");
}

#[test]
fn the_policy_about_pods_names_all_that_config_manager_writes_and_no_more() {
    let Some(chart) = chart() else { return };
    let policy = chart.render(&["--kube-version", "1.30.0"]).unwrap();
    let policy = policy.find("ValidatingAdmissionPolicy", "mpshare-own-pods").unwrap().clone();
    assert_eq!(policy["spec"]["variables"][2]["name"], "own");
    let own = text(&policy["spec"]["variables"][2]["expression"]).replace('\n', " ");
    let own: Vec<&str> = own.split('"').skip(1).step_by(2).collect();
    assert_eq!(
        own,
        [
            names::ALLOCATION,
            names::V1_INDEX,
            names::V1_POD,
            names::V1_DEVICE,
            names::V1_ASSIGNED,
            names::V2_ALLOCATION,
            names::V2_ASSIGNED,
        ]
    );
    let rules = &policy["spec"]["matchConstraints"]["resourceRules"];
    assert_eq!(rules[0]["resources"][0], "pods/status");
}

#[test]
fn what_an_uninstall_needs_is_not_there_before_and_goes_by_itself() {
    let Some(chart) = chart() else { return };
    let installed = with(&chart, &[]).unwrap();
    let all = chart.render_with_hooks(&[]).unwrap();
    let hooks: Vec<&Value> =
        all.objects.iter().filter(|object| !installed.objects.contains(object)).collect();
    for object in &hooks {
        let annotations = &object["metadata"]["annotations"];
        assert_eq!(annotations["helm.sh/hook"], "post-delete", "{object}");
        let policy = text(&annotations["helm.sh/hook-delete-policy"]);
        assert!(policy.contains("before-hook-creation"), "{object}");
        // The job's log is there for people; Kubernetes deletes it.
        let is_job = object["kind"] == "Job";
        assert_eq!(policy.contains("hook-succeeded"), !is_job, "{object}");
        assert_eq!(object["spec"]["ttlSecondsAfterFinished"].is_u64(), is_job, "{object}");
        assert!(!object["rules"].to_string().contains('*'), "{object}");
    }
    assert!(hooks.iter().any(|object| object["kind"] == "Job"));
    let off = chart.render_with_hooks(&["--set", "uninstall.cleanup=false"]).unwrap();
    assert_eq!(off.objects.len(), installed.objects.len());
}

#[test]
fn an_uninstall_has_as_few_privileges_as_what_was_installed() {
    let Some(chart) = chart() else { return };
    for (enabled, is_unprivileged) in [("true", false), ("false", true)] {
        let value = format!("mps.enabled={enabled}");
        let rendering = chart.render_with_hooks(&["--set", &value]).unwrap();
        let args = rendering.find("Job", "mpshare-uninstall").unwrap()["spec"].to_string();
        assert_eq!(args.contains("\"--unprivileged\""), is_unprivileged, "{args}");
    }
}

#[test]
fn only_config_manager_the_scheduler_and_the_webhook_have_a_token() {
    let Some(chart) = chart() else { return };
    for (values, rendering) in renderings(&chart) {
        for set in sets_of_nodes(rendering) {
            assert_eq!(pod(set)["automountServiceAccountToken"], false, "{values:?}");
        }
        let by_the_pod = workloads(rendering)
            .filter(|set| pod(set)["automountServiceAccountToken"] != false)
            .map(|set| text(&set["metadata"]["name"]));
        for name in by_the_pod {
            let is_known = name.starts_with("mpshare-scheduler") || name == "mpshare-webhook";
            assert!(is_known, "{values:?}: {name}");
        }
        let has_token =
            |container: &&Value| container["volumeMounts"].to_string().contains("serviceaccount");
        let names: Vec<&str> =
            rendering.containers().filter(has_token).map(|found| text(&found["name"])).collect();
        assert_eq!(names, ["config-manager-sidecar"], "{values:?}");
    }
}

#[test]
fn every_volume_that_is_mounted_is_there_and_every_one_that_is_there_is_mounted() {
    let Some(chart) = chart() else { return };
    for (values, rendering) in renderings(&chart) {
        for set in workloads(rendering) {
            let names = |list: &Value| -> BTreeSet<String> {
                let entries = list.as_array().into_iter().flatten();
                entries.map(|entry| text(&entry["name"]).to_owned()).collect()
            };
            let containers = pod(set)["containers"].as_array().unwrap().iter();
            let mounted: BTreeSet<String> =
                containers.flat_map(|container| names(&container["volumeMounts"])).collect();
            assert_eq!(mounted, names(&pod(set)["volumes"]), "{values:?}");
        }
    }
}

#[test]
fn all_roles_share_one_mps_root() {
    let Some(chart) = chart() else { return };
    for values in [&["mps.root=/var/lib/mps"][..], &["mps.root=/var/lib/mps", "mps.enabled=false"]]
    {
        let rendering = with(&chart, values).unwrap();
        assert!(!rendering.text.contains("/run/nvidia/mps"));
        for set in sets_of_nodes(&rendering) {
            for container in pod(set)["containers"].as_array().unwrap() {
                assert!(container["args"].to_string().contains("--mps-root=/var/lib/mps"));
                assert!(container["volumeMounts"].to_string().contains(r#""/var/lib/mps""#));
            }
            let volumes = pod(set)["volumes"].as_array().unwrap();
            let root = volumes.iter().find(|volume| volume["name"] == "mps-root").unwrap();
            assert_eq!(root["hostPath"]["path"], "/var/lib/mps");
            assert_eq!(root["hostPath"]["type"], "DirectoryOrCreate");
        }
    }
}

/// The kubelet's `--root-dir` moves one of its sockets and not the other.
#[test]
fn a_kubelet_elsewhere_has_its_device_plugins_where_they_always_are() {
    let Some(chart) = chart() else { return };
    let rendering = with(&chart, &["kubeletRoot=/data/kubelet"]).unwrap();
    let args = rendering.container("nvidia-device-plugin-ctr").unwrap()["args"].to_string();
    assert!(args.contains("=/var/lib/kubelet/device-plugins\""), "{args}");
    assert!(args.contains("=/data/kubelet/pod-resources/kubelet.sock\""), "{args}");
}

/// A node is chosen by any one of the labels; the terms of a node affinity are alternatives.
#[test]
fn each_label_of_a_gpu_node_is_enough() {
    let Some(chart) = chart() else { return };
    let rendering = with(&chart, &[]).unwrap();
    for set in sets_of_nodes(&rendering) {
        let affinity = &pod(set)["affinity"]["nodeAffinity"];
        let required = &affinity["requiredDuringSchedulingIgnoredDuringExecution"];
        let terms = required["nodeSelectorTerms"].as_array().unwrap();
        let alternatives: Vec<(&str, &str)> = terms
            .iter()
            .map(|term| {
                let expressions = term["matchExpressions"].as_array().unwrap();
                assert_eq!(expressions.len(), 1);
                (text(&expressions[0]["key"]), text(&expressions[0]["operator"]))
            })
            .collect();
        for wanted in [
            ("nvidia.com/gpu.present", "In"),
            ("nvidia.com/device-plugin.config", "Exists"),
            ("ack.node.gpu.schedule", "In"),
        ] {
            assert!(alternatives.contains(&wanted), "{alternatives:?}");
        }
    }
}

/// The program itself judges its arguments; `--help` at their end keeps it from starting.
#[test]
fn every_argument_is_one_that_the_program_takes() {
    let Some(chart) = chart() else { return };
    let built = |program: &str| built_program(program.rsplit('/').next()?);
    let others = ["mpshare-scheduler-extender", "mpshare-webhook"].map(built);
    let (Some(image), [Some(_), Some(_)]) = (built("mpshare"), others) else {
        println!("skipped: our programs aren't built beside this test");
        return;
    };
    let hooks = (&["a hook"][..], chart.render_with_hooks(&[]).unwrap());
    for (values, rendering) in renderings(&chart).iter().chain([&hooks]) {
        for container in rendering.containers() {
            // Somebody else's; it is asked in `scheduler`.
            if container["name"] == "kube-scheduler" {
                continue;
            }
            let words: Vec<&str> = container["args"].as_array().unwrap().iter().map(text).collect();
            let named = container["command"][0].as_str();
            let program = named.map_or(Some(image.clone()), built).unwrap();
            let mut command = Command::new(&program);
            let output = command.args(&words).arg("--help").output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{values:?}: {words:?}: {said}");
            let help = String::from_utf8_lossy(&output.stdout);
            for variable in container["env"].as_array().unwrap() {
                let name = text(&variable["name"]);
                let is_known = help.contains(&format!("{name}="));
                assert!(is_known || name.starts_with("NVIDIA_"), "{words:?} know no {name}");
            }
        }
    }
}

fn built_program(name: &str) -> Option<PathBuf> {
    let this = std::env::current_exe().unwrap();
    let program = this.parent()?.parent()?.join(name);
    Some(program).filter(|program| program.is_file())
}
