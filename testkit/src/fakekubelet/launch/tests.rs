//! Environment rules and path mapping, without a process.

use mpshare_kubelet::device_plugin::Mount;

use super::*;
use crate::fakekubelet::pod::pod;

fn options() -> Options {
    Options::in_directory(Path::new("/tmp/k"))
}

fn mount(container_path: &str, host_path: &str) -> Mount {
    Mount { container_path: container_path.into(), host_path: host_path.into(), read_only: false }
}

fn started(options: &Options, pod: &PodSpec, given: &RunOptions) -> Launch {
    launch(options, pod, &pod.containers[0], given, "id")
}

#[test]
fn pod_env_beats_plugin_env_beats_image_env() {
    let mut options = options();
    let image = Image {
        env: BTreeMap::from(["A", "B", "C"].map(|name| (name.to_owned(), "image".to_owned()))),
        ..Image::default()
    };
    options.images.insert("i".into(), image);
    let given = RunOptions {
        envs: BTreeMap::from(["B", "C"].map(|name| (name.to_owned(), "plugin".to_owned()))),
        ..RunOptions::default()
    };
    let pod = pod("p").image("i").env("C", "pod");
    let env = started(&options, &pod, &given).env;
    assert_eq!((&*env["A"], &*env["B"], &*env["C"]), ("image", "plugin", "pod"));
}

#[test]
fn env_values_in_a_mount_become_host_paths() {
    let given = RunOptions {
        envs: BTreeMap::from([("PIPE".into(), "/mps/pipe".into())]),
        mounts: vec![mount("/mps", "/host"), mount("/mps/pipe", "/run/pipe")],
        ..RunOptions::default()
    };
    let pod = pod("p").env("LOG", "/mps/log/a").env("OTHER", "/mpsx").env("ROOT", "/mps/");
    let env = started(&options(), &pod, &given).env;
    assert_eq!(env["PIPE"], "/run/pipe");
    assert_eq!(env["LOG"], "/host/log/a");
    assert_eq!(env["OTHER"], "/mpsx");
    assert_eq!(env["ROOT"], "/host");
}

#[test]
fn what_is_at_dev_shm_is_told_to_the_driver() {
    let mut options = options();
    options.host_shm = Some("/host/shm".into());
    let given =
        RunOptions { mounts: vec![mount("/dev/shm", "/run/mps/shm")], ..RunOptions::default() };
    let none = RunOptions::default();
    let shm =
        |pod: PodSpec, given: &RunOptions| started(&options, &pod, given).env[SHM_ENV].clone();
    let plain = || pod("p").uid("u").container("c");
    assert_eq!(shm(plain(), &given), "/run/mps/shm");
    assert_eq!(shm(plain().host_ipc(), &given), "/run/mps/shm");
    assert_eq!(shm(plain().host_ipc(), &none), "/host/shm");
    assert_eq!(shm(plain(), &none), "/tmp/k/pods/u/shm");
    let hidden = plain().mount("/dev/shm", Volume::EmptyDir("v".into()));
    assert_eq!(shm(hidden, &given), "/tmp/k/pods/u/volumes/v");
}

#[test]
fn arguments_can_use_plugin_env() {
    let given =
        RunOptions { envs: BTreeMap::from([("GPUS".into(), "2".into())]), ..RunOptions::default() };
    let pod = pod("p").command(["echo", "n=$(GPUS)", "$(NO)", "$$(GPUS)", "5$"]);
    let argv = started(&options(), &pod, &given).argv;
    assert_eq!(argv, ["echo", "n=2", "$(NO)", "$(GPUS)", "5$"]);
}

#[test]
fn an_image_maps_programs() {
    let mut options = options();
    let image = Image {
        entrypoint: vec!["serve".into()],
        programs: BTreeMap::from([("sleep".into(), vec!["/sim/hold".into(), "-q".into()])]),
        ..Image::default()
    };
    options.images.insert("i".into(), image);
    let argv = |pod: PodSpec| started(&options, &pod, &RunOptions::default()).argv;
    let slept = argv(pod("p").image("i").command(["sleep", "infinity"]));
    assert_eq!(slept, ["/sim/hold", "-q", "infinity"]);
    assert_eq!(argv(pod("p").image("i")), ["serve"]);
    options.images.get_mut("i").unwrap().instead = Some(vec!["x".into()]);
    let instead = started(&options, &pod("p").image("i").command(["a"]), &RunOptions::default());
    assert_eq!(instead.argv, ["x"]);
}
