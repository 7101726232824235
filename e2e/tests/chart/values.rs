//! What values mean: which config is the default, what NVIDIA's documentation tells people to set,
//! and what is refused.

use std::fs;

use mpshare_e2e::chart::{Chart, Rendering};

use super::{chart, refusal, repository, with};

fn default_config(rendering: &Rendering) -> String {
    let args = rendering.container("config-manager-sidecar").unwrap()["args"].clone();
    let words: Vec<String> = serde_json::from_value(args).unwrap();
    let option = words.iter().find_map(|word| word.strip_prefix("--default-config="));
    option.unwrap().to_owned()
}

fn config(rendering: &Rendering, name: &str) -> String {
    let map = rendering.find("ConfigMap", "nvidia-device-plugin-configs").unwrap();
    let text = map["data"][name].as_str();
    text.unwrap_or_else(|| panic!("no config `{name}` in {map}")).to_owned()
}

#[test]
fn the_default_config_follows_from_the_addons_values_and_nvidias() {
    let Some(chart) = chart() else { return };
    let cases: &[(&[&str], &str)] = &[
        (&[], "mps-1x"),
        (&["mps.default=mps-2x"], "mps-2x"),
        (&["mps.replicas=4"], "mps-4x"),
        (&["mps.replicas=3"], "mps-3x"),
        (&["mps.replicas=2", "mps.default=mps-2x"], "mps-2x"),
        (&["mps.replicas=2", "mps.enabled=false"], "mps-1x"),
        // NVIDIA's rules: the config `default`, else the only one.
        (&["config.map.mine=version: v1"], "mine"),
        (&["config.map.mine=version: v1", "config.map.default=version: v1"], "default"),
        (&["config.map.a=version: v1", "config.map.b=version: v1", "config.default=b"], "b"),
        (&["config.map.a=version: v1", "mps.default=mps-2x"], "mps-2x"),
        // Nodes decide, among configs that the chart doesn't know.
        (&["config.name=mine"], ""),
        (&["config.name=mine", "config.default=a"], "a"),
        (&["config.name=mine", "mps.replicas=2"], "mps-2x"),
    ];
    for (values, expected) in cases {
        assert_eq!(default_config(&with(&chart, values).unwrap()), *expected, "{values:?}");
    }
}

#[test]
fn a_split_that_is_no_preset_becomes_a_config() {
    let Some(chart) = chart() else { return };
    let text = config(&with(&chart, &["mps.replicas=3"]).unwrap(), "mps-3x");
    assert!(text.contains("replicas: 3"), "{text}");
}

#[test]
fn the_presets_are_those_of_the_tke_example() {
    let Some(chart) = chart() else { return };
    let example = fs::read_to_string(repository().join("examples/tke/configmap.yaml")).unwrap();
    let example = Rendering::read(example).unwrap();
    let rendering = with(&chart, &[]).unwrap();
    for name in ["mps-1x", "mps-2x", "mps-4x"] {
        assert_eq!(config(&rendering, name), config(&example, name));
    }
}

#[test]
fn the_preset_for_units_of_memory_is_that_of_the_ack_example() {
    let Some(chart) = chart() else { return };
    let example = fs::read_to_string(repository().join("examples/ack/configmap.yaml")).unwrap();
    let example = Rendering::read(example).unwrap();
    let preset = |values: &[&str]| config(&with(&chart, values).unwrap(), "gpu-mem");
    assert_eq!(preset(&[]), config(&example, "gpu-mem"));
    let spread = preset(&["sharedDevicesAllocationPolicy=distributed", "deviceIDStrategy=index"]);
    assert!(spread.contains("sharedDevicesAllocationPolicy: distributed"), "{spread}");
    assert!(spread.contains("deviceIDStrategy: index"), "{spread}");
}

#[test]
fn a_config_of_ones_own_keeps_its_text_to_the_byte() {
    let Some(chart) = chart() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.yaml");
    let text = "# why\nversion:   v1\n\nsharing: {mps: {resources: [{name: gpu, replicas: 2}]}}\n";
    fs::write(&path, text).unwrap();
    let value = format!("config.map.mine={}", path.display());
    let rendering = chart.render(&["--set-file", &value]).unwrap();
    assert_eq!(config(&rendering, "mine"), text);
}

#[test]
fn values_that_nvidias_chart_gives_the_plugin_win_over_the_configs() {
    let Some(chart) = chart() else { return };
    let mine = "config.map.mine=flags: {plugin: {deviceIDStrategy: uuid\\, passDeviceSpecs: true}}";
    let values = [mine, "deviceIDStrategy=index", "deviceListStrategy=envvar\\,cdi-cri"];
    let rendering = with(&chart, &values).unwrap();
    for name in ["mine", "mps-2x"] {
        let text = config(&rendering, name);
        assert!(text.contains("deviceIDStrategy: index"), "{text}");
        assert!(text.contains("- cdi-cri"), "{text}");
    }
    assert!(config(&rendering, "mine").contains("passDeviceSpecs: true"));
}

/// The configs of NVIDIA's README, as it has them.
const CONFIG0: &str = "version: v1
flags:
  migStrategy: \"none\"
  failOnInitError: true
  nvidiaDriverRoot: \"/\"
  plugin:
    passDeviceSpecs: false
    deviceListStrategy: envvar
    deviceIDStrategy: uuid
";
const CONFIG_MPS: &str = "version: v1
sharing:
  mps:
    resources:
    - name: nvidia.com/gpu
      replicas: 10
";

/// The arguments of the commands in NVIDIA's README. Not among them: `migStrategy=mixed` and
/// `devicePlugin.enabled=false`, which ask for what mpshare isn't.
#[test]
fn the_commands_of_nvidias_documentation_install() {
    let Some(chart) = chart() else { return };
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in [("0", CONFIG0), ("1", CONFIG_MPS)] {
        fs::write(dir.path().join(name), text).unwrap();
    }
    let file = |name: &str| dir.path().join(name).display().to_string();
    let zero = format!("config.map.config0={}", file("0"));
    let one = format!("config.map.config1={}", file("1"));
    let single = format!("config.map.config={}", file("0"));
    let commands: &[&[&str]] = &[
        &[],
        &["--set-file", &single],
        &["--set", "config.name=nvidia-plugin-configs"],
        &["--set", "config.default=config0", "--set-file", &zero, "--set-file", &one],
        &["--set", "config.default=config0", "--set", "config.name=nvidia-plugin-configs"],
        &[
            "--set",
            "compatWithCPUManager=true",
            "--set",
            "resources.requests.cpu=100m",
            "--set",
            "resources.limits.memory=512Mi",
        ],
        &["--set", "gfd.enabled=true"],
        &["--set", "gfd.enabled=true", "--set", "nfd.enabled=false"],
        &["--set", "runtimeClassName=nvidia"],
        &["--set", "allowDefaultNamespace=true", "--set", "nvidiaDriverRoot=/run/nvidia/driver"],
        &["--set", "migStrategy=none", "--set", "failOnInitError=true"],
    ];
    for command in commands {
        // The namespace of those commands.
        let arguments = [&["--namespace", "nvidia-device-plugin"], *command].concat();
        let rendering = chart.render(&arguments).unwrap();
        assert_eq!(rendering.of_kind("DaemonSet").count(), 2, "{command:?}");
    }
}

/// What NVIDIA's own `values.yaml` (0.20) holds, so that `--values` with a copy of it works.
#[test]
fn the_names_of_nvidias_values_are_known() {
    let Some(chart) = chart() else { return };
    for value in [
        "compatWithCPUManager=null",
        "migStrategy=null",
        "failOnInitError=null",
        "deviceListStrategy=null",
        "deviceIDStrategy=null",
        "nvidiaDriverRoot=null",
        "gdrcopyEnabled=null",
        "gdsEnabled=false",
        "mofedEnabled=null",
        "deviceDiscoveryStrategy=auto",
        "nameOverride=",
        "fullnameOverride=",
        "namespaceOverride=",
        "selectorLabelsOverride=null",
        "allowDefaultNamespace=false",
        "image.pullPolicy=IfNotPresent",
        "image.tag=",
        "updateStrategy.type=RollingUpdate",
        "priorityClassName=system-node-critical",
        "runtimeClassName=null",
        "devicePlugin.enabled=true",
        "gfd.enabled=true",
        "gfd.sleepInterval=60s",
        "nfd.enableNodeFeatureApi=true",
        "mps.root=/run/nvidia/mps",
        "mps.enableHostPID=true",
        "cdi.nvidiaHookPath=null",
        "logVerbosity=5",
        "configManager.resources.limits.cpu=1",
        "nvidiaDriverCapabilities=all",
        "componentSelectorLabels.enabled=true",
        "devicePlugin.containers.main.env[0].name=NVIDIA_VISIBLE_DEVICES",
    ] {
        with(&chart, &[value]).unwrap_or_else(|error| panic!("{value}: {error}"));
    }
}

#[test]
fn health_checks_that_nvidias_plugin_was_told_of_reach_the_supervisor() {
    let Some(chart) = chart() else { return };
    let env = "devicePlugin.containers.main.env[0]";
    let name = format!("{env}.name=DP_DISABLE_HEALTHCHECKS");
    let value = format!("{env}.value=xids");
    for off in ["mps.enabled=true", "mps.enabled=false"] {
        let rendering = with(&chart, &[&name, &value, off]).unwrap();
        assert!(rendering.text.contains("--disable-health-checks=xids"), "{off}");
    }
}

#[test]
fn what_is_done_about_processes_past_their_share_reaches_the_supervisor() {
    let Some(chart) = chart() else { return };
    let values =
        ["mps.overShare=evict-process", "mps.overShareGraceSeconds=30", "mps.outsiders=kill"];
    let rendering = with(&chart, &values).unwrap();
    let args = &rendering.container("mps-control-daemon-ctr").unwrap()["args"];
    for word in ["--over-share=evict-process", "--over-share-grace=30", "--outsiders=kill"] {
        assert!(args.as_array().unwrap().contains(&word.into()), "{args}");
    }
    assert!(with(&chart, &["mps.overShare=evict"]).is_err());
    // Without privileges nobody else's process can be seen, let alone ended.
    let rendering = with(&chart, &[&values[..], &["mps.enabled=false"]].concat()).unwrap();
    assert!(!rendering.text.contains("--outsiders"));
}

#[test]
fn what_is_outside_of_shares_is_subtracted_where_that_is_wished() {
    let Some(chart) = chart() else { return };
    for mode in ["scheduler.mode=second", "scheduler.mode=extender"] {
        let with = |wish| with(&chart, &[mode, wish]).unwrap().text.contains("--subtract-outside");
        assert!(with("scheduler.subtractOutside=true"), "{mode}");
        assert!(!with("scheduler.subtractOutside=false"), "{mode}");
    }
}

#[test]
fn how_servers_are_cared_for_reaches_the_supervisor() {
    let Some(chart) = chart() else { return };
    let values =
        ["mps.canaryPeriodSeconds=0", "mps.canaryDeadlineSeconds=5", "mps.faultGraceSeconds=60"];
    let rendering = with(&chart, &values).unwrap();
    let args = &rendering.container("mps-control-daemon-ctr").unwrap()["args"];
    for word in ["--canary-period=0", "--canary-deadline=5", "--fault-grace=60"] {
        assert!(args.as_array().unwrap().contains(&word.into()), "{args}");
    }
    assert!(with(&chart, &["mps.canaryDeadlineSeconds=0"]).is_err());
}

#[test]
fn an_empty_list_of_fallbacks_is_none_wherever_it_matters() {
    let Some(chart) = chart() else { return };
    let none = ["--set-json", "config.fallbackStrategies=[]", "--set"];
    let default = ["--set", "config.fallbackStrategies=null", "--set"];
    let render = |list: [&str; 3], value: &str| chart.render(&[&list[..], &[value]].concat());
    for (list, told) in
        [(none, "--fallback-strategies="), (default, "--fallback-strategies=named,single")]
    {
        let rendering = render(list, "config.name=mine").unwrap();
        let args = &rendering.container("config-manager-sidecar").unwrap()["args"];
        assert!(args.as_array().unwrap().contains(&told.into()), "{args}");
    }
    let refused = render(none, "config.map.a=x").unwrap_err().to_string();
    assert!(refused.contains("config.default"), "{refused}");
    render(default, "config.map.a=x").unwrap();
}

#[track_caller]
fn refuses(chart: &Chart, values: &[&str], words: &[&str]) {
    let sentence = refusal(chart, values);
    for word in words {
        assert!(sentence.contains(word), "no {word:?} in {sentence}");
    }
}

#[test]
fn a_mistyped_value_is_refused_by_its_name() {
    let Some(chart) = chart() else { return };
    refuses(&chart, &["mps.enabeld=true"], &["'/mps'", "'enabeld'"]);
    refuses(&chart, &["mpss.enabled=true"], &["'mpss'"]);
    refuses(&chart, &["config.defualt=a"], &["'/config'", "'defualt'"]);
    refuses(&chart, &["mps.replicas=two"], &["'/mps/replicas'", "got string"]);
    refuses(&chart, &["mps.replicas=61"], &["'/mps/replicas'", "61", "60"]);
    refuses(&chart, &["deviceListStrategy=env"], &["'/deviceListStrategy'", "'env'"]);
    refuses(&chart, &["config.fallbackStrategies={first}"], &["'/config/fallbackStrategies/0'"]);
}

#[test]
fn what_cannot_be_done_is_refused_with_a_hint() {
    let Some(chart) = chart() else { return };
    for (values, words) in [
        (&["migStrategy=mixed"][..], &["migStrategy", "MIG"][..]),
        (&["gdsEnabled=true"], &["gdsEnabled"]),
        (&["deviceDiscoveryStrategy=tegra"], &["NVML"]),
        (&["fullnameOverride=x"], &["fullnameOverride", "names.devicePlugin"]),
        (&["selectorLabelsOverride.a=b"], &["selectorLabelsOverride", "podLabels"]),
        (&["devicePlugin.enabled=false"], &["devicePlugin.enabled"]),
        (&["mps.enableHostPID=false"], &["mps.enableHostPID"]),
        (&["image.repository=nvcr.io/nvidia/k8s-device-plugin"], &["image.repository"]),
        (&["devicePlugin.containers.main.env[0].name=MIG_STRATEGY"], &["`MIG_STRATEGY`"]),
        (&["config.name=a", "config.map.b=c"], &["config.name", "config.map"]),
        (&["config.map.a=x", "config.map.b=y"], &["config.default", "`a`, `b`"]),
        (&["config.name=a", "deviceIDStrategy=index"], &["`a`", "flags.plugin"]),
        (&["mps.default=mps-3x"], &["`mps-3x`", "`mps-1x`, `mps-2x`, `mps-4x`"]),
        (&["mps.default=mps-2x", "mps.replicas=4"], &["`mps-2x`", "4"]),
    ] {
        refuses(&chart, values, words);
        refuses(&chart, values, &["hint: "]);
    }
}
