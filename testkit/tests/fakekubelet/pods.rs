//! Pods as processes: environment, mounts, phases, deletion, and nothing left behind.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use mpshare_testkit::fakekubelet::{
    Image, Phase, PodHandle, PodSpec, RestartPolicy, Violation, pod,
};

use tokio::io::{AsyncBufReadExt, BufReader};

use super::Setup;
use super::plugin::{Behaviour, GPU, SOON, reply, wait_until};

fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A zombie has ended.
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

async fn pid(pod: &PodHandle) -> u32 {
    let status = pod.wait_phase(Phase::Running, SOON).await.unwrap();
    *status.pids().values().next().unwrap()
}

#[tokio::test]
async fn a_container_meets_its_mounts_under_host_paths() {
    let setup = Setup::new().await;
    let plugin = setup.plugin(Behaviour::new(&["a"])).await;
    let (pipe, shm) = (setup.directory.path().join("pipe"), setup.directory.path().join("shm"));
    std::fs::create_dir(&pipe).unwrap();
    std::fs::create_dir(&shm).unwrap();
    *plugin.behaviour.reply.lock().unwrap() = Ok(reply(
        &[("CUDA_MPS_PIPE_DIRECTORY", "/mps/pipe")],
        &[("/mps/pipe", &pipe), ("/dev/shm", &shm)],
    ));
    let pod = pod("p")
        .gpus(GPU, 1)
        .shell("echo $CUDA_MPS_PIPE_DIRECTORY $MPSHARE_SIM_SHM")
        .restart(RestartPolicy::Never);
    let pod = setup.kubelet.admit(pod);
    pod.wait_phase(Phase::Succeeded, SOON).await.unwrap();
    let expected = format!("{} {}\n", pipe.display(), shm.display());
    assert_eq!(pod.log("main"), expected);
    assert_eq!(setup.kubelet.violations(), []);
}

#[tokio::test]
async fn a_missing_mount_source_becomes_a_directory_and_is_a_violation() {
    let setup = Setup::new().await;
    let plugin = setup.plugin(Behaviour::new(&["a"])).await;
    let pipe = setup.directory.path().join("control");
    *plugin.behaviour.reply.lock().unwrap() = Ok(reply(&[], &[("/mps/control", &pipe)]));
    let pod = setup.kubelet.admit(pod("p").gpus(GPU, 1).command(["/bin/sleep", "60"]));
    pod.wait_phase(Phase::Running, SOON).await.unwrap();
    assert!(pipe.is_dir());
    let expected =
        Violation::MountSourceMissing { path: pipe, container_path: "/mps/control".into() };
    assert_eq!(setup.kubelet.violations(), [expected]);
}

#[tokio::test]
async fn exit_codes_decide_the_phase() {
    let setup = Setup::new().await;
    let run = |name: &str, script: &str| {
        let pod = pod(name).shell(script).restart(RestartPolicy::Never);
        setup.kubelet.admit(pod)
    };
    // Kubernetes makes one dollar sign of two.
    let good = run("good", "exit 0");
    let bad = run("bad", "kill -9 $$$$");
    good.wait_phase(Phase::Succeeded, SOON).await.unwrap();
    let status = bad.wait_phase(Phase::Failed, SOON).await.unwrap();
    assert_eq!(status.containers["main"].exit_code(), Some(137));
}

#[tokio::test]
async fn on_failure_restarts_until_success() {
    let setup = Setup::new().await;
    let script = "if [ -e done ]; then exit 0; fi; touch done; exit 1";
    let pod = pod("p").shell(script).restart(RestartPolicy::OnFailure);
    let pod = setup.kubelet.admit(pod);
    let status = pod.wait_phase(Phase::Succeeded, SOON).await.unwrap();
    assert_eq!(status.containers["main"].restarts, 1);
    assert_eq!(status.containers["main"].last_exit, Some(0));
}

#[tokio::test]
async fn init_containers_run_before_app_containers() {
    let setup = Setup::new().await;
    let pod = pod("p")
        .init_container("first")
        .shell("touch ready")
        .container("app")
        .shell("test -e ready")
        .restart(RestartPolicy::Never);
    let pod = setup.kubelet.admit(pod);
    pod.wait_phase(Phase::Succeeded, SOON).await.unwrap();
}

#[tokio::test]
async fn a_graceful_deletion_terminates_and_then_kills() {
    let setup = Setup::new().await;
    let _plugin = setup.plugin(Behaviour::new(&["a"])).await;
    let script = "trap 'echo term' TERM; echo up; while :; do sleep 0.05; done";
    let pod = setup.kubelet.admit(pod("p").gpus(GPU, 1).shell(script));
    let pid = pid(&pod).await;
    wait_until("trap set", || pod.log("main").contains("up")).await;
    pod.delete_with_grace(Duration::from_millis(300));
    wait_until("term", || pod.log("main").contains("term")).await;
    let status = pod.wait_gone(SOON).await.unwrap();
    assert_eq!(status.containers["main"].exit_code(), Some(137));
    assert!(!lives(pid));
}

#[tokio::test]
async fn a_forced_deletion_frees_devices_before_the_processes_end() {
    let setup = Setup::with(|options| options.min_grace = Duration::from_mins(1)).await;
    let _plugin = setup.plugin(Behaviour::new(&["a"])).await;
    let script = "trap '' TERM; echo up; while :; do sleep 0.05; done";
    let first = setup.kubelet.admit(pod("first").gpus(GPU, 1).shell(script));
    let pid = pid(&first).await;
    wait_until("trap set", || first.log("main").contains("up")).await;
    first.force_delete();
    first.wait_gone(SOON).await.unwrap();
    let second = setup.kubelet.admit(pod("second").gpus(GPU, 1).command(["/bin/sleep", "60"]));
    second.wait_phase(Phase::Running, SOON).await.unwrap();
    assert_eq!(second.devices("main", GPU).len(), 1);
    assert!(lives(pid), "the first pod's process has to outlive its devices");
}

#[tokio::test]
async fn a_container_ends_with_all_its_processes() {
    let setup = Setup::new().await;
    let script = "setsid sleep 300 & echo $!; exec sleep 300";
    let pod = setup.kubelet.admit(pod("p").shell(script));
    pid(&pod).await;
    wait_until("child", || !pod.log("main").is_empty()).await;
    let child: u32 = pod.log("main").trim().parse().unwrap();
    assert!(lives(child));
    pod.delete_with_grace(Duration::ZERO);
    pod.wait_gone(SOON).await.unwrap();
    wait_until("the child has ended", || !lives(child)).await;
}

#[tokio::test]
async fn a_dropped_kubelet_leaves_no_process() {
    let setup = Setup::new().await;
    let pod = setup.kubelet.admit(pod("p").command(["/bin/sleep", "300"]));
    let pid = pid(&pod).await;
    drop(pod);
    drop(setup);
    assert!(!lives(pid));
}

/// Runs this very test in another process, which starts a pod and is killed.
#[tokio::test]
async fn a_killed_test_leaves_no_process() {
    const ROLE: &str = "FAKEKUBELET_TEST_VICTIM";
    const NAME: &str = "pods::a_killed_test_leaves_no_process";
    if std::env::var_os(ROLE).is_some() {
        let setup = Setup::new().await;
        let pod = setup.kubelet.admit(pod("p").command(["/bin/sleep", "300"]));
        println!("\npid={}", pid(&pod).await);
        return std::future::pending().await;
    }
    let mut victim = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env(ROLE, "1")
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let pid = loop {
        let line = lines.next_line().await.unwrap().unwrap();
        if let Some(pid) = line.strip_prefix("pid=") {
            break pid.parse().unwrap();
        }
    };
    assert!(lives(pid));
    victim.kill().await.unwrap();
    wait_until("the container has ended", || !lives(pid)).await;
}

#[tokio::test]
async fn cgroup_files_name_pod_and_container_and_go_with_the_process() {
    let setup = Setup::with(|options| {
        options.proc_root = options.pods.parent().map(|root| root.join("proc"));
    })
    .await;
    let proc_root = setup.directory.path().join("proc");
    let pod = setup.kubelet.admit(pod("p").shell("sleep 300 & echo $!; wait"));
    let pid = pid(&pod).await;
    let id = pod.status().containers["main"].id.clone();
    let expected = format!("0::/kubepods/besteffort/pod{}/{id}\n", pod.uid());
    let file = |pid: u32| proc_root.join(pid.to_string()).join("cgroup");
    let reads = |path: &Path| std::fs::read_to_string(path).unwrap_or_default() == expected;
    wait_until("child", || !pod.log("main").is_empty()).await;
    assert!(reads(&file(pid)));
    assert_eq!(id.len(), 64);
    let child = pod.log("main").trim().parse().unwrap();
    wait_until("the child's file", || reads(&file(child))).await;
    pod.delete_with_grace(Duration::ZERO);
    pod.wait_gone(SOON).await.unwrap();
    assert!(!file(pid).exists());
    wait_until("the child's file is gone", || !file(child).exists()).await;
}

#[tokio::test]
async fn a_manifest_runs_with_its_image_mapped() {
    let image = Image {
        programs: BTreeMap::from([("sleep".into(), vec!["/bin/echo".into(), "slept".into()])]),
        ..Image::default()
    };
    let setup = Setup::with(|options| {
        options.images.insert("nvidia/cuda:12.0-base".into(), image);
    })
    .await;
    let _plugin = setup.plugin(Behaviour::new(&["a"])).await;
    let manifest: Pod = serde_json::from_value(serde_json::json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "demo", "namespace": "team"},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{
                "name": "cuda",
                "image": "nvidia/cuda:12.0-base",
                "command": ["sleep", "infinity"],
                "resources": {"limits": {GPU: "1", "cpu": "500m"}}
            }]
        }
    }))
    .unwrap();
    let pod = setup.kubelet.admit(PodSpec::from_manifest(&manifest).unwrap());
    let status = pod.wait_phase(Phase::Succeeded, SOON).await.unwrap();
    assert_eq!(pod.log("cuda"), "slept infinity\n");
    assert_eq!(pod.devices("cuda", GPU).len(), 1);
    let status = status.to_kubernetes();
    assert_eq!(status.phase.as_deref(), Some("Succeeded"));
}

#[tokio::test]
async fn subscribers_see_every_change() {
    let setup = Setup::new().await;
    let mut changes = setup.kubelet.subscribe();
    let pod = pod("p").shell("exit 0").restart(RestartPolicy::Never);
    let pod = setup.kubelet.admit(pod);
    pod.wait_phase(Phase::Succeeded, SOON).await.unwrap();
    let mut phases = Vec::new();
    while let Ok(change) = changes.try_recv() {
        assert_eq!(change.uid, pod.uid());
        phases.push(change.status.phase);
    }
    phases.dedup();
    assert_eq!(phases, [Phase::Pending, Phase::Running, Phase::Succeeded]);
}
