//! Servers in trouble: a fatal fault, one that takes nobody, one that dies, and what tenants that are root
//! may say to a daemon.

use std::time::{Duration, Instant};

use mpshare_api::{GpuState, GpuStatus};
use mpshare_sim_state::ProcessKind;
use mpshare_testkit::fakekubelet::{Phase, PodHandle, pod};
use mpshare_testkit::simnode::{Role, Setup, SimNode};
use rustix::process::{Pid, Signal, kill_process};

use crate::scene::{
    GPU, PATIENCE, bound, card, client, hold, hold_bound, label, logs, pod_event, ready, running,
    wait_or,
};

fn setup(supervisor: &[&'static str]) -> Setup {
    Setup { supervisor: supervisor.to_vec(), ..Setup::two_cards() }
}

fn one_card(supervisor: &[&'static str]) -> Setup {
    Setup { cards: vec![Setup::two_cards().cards[0]], ..setup(supervisor) }
}

/// The index of the card that a pod has.
fn card_of(pod: &PodHandle) -> usize {
    usize::from(!pod.devices("c", GPU).iter().any(|id| id.contains("cb1213a3")))
}

fn finding(gpu: &GpuStatus, code: &str) -> Option<String> {
    gpu.findings.iter().find(|it| it.code == code).map(|it| it.message.clone())
}

/// Whether a client of this pod has a context, and none that is lost.
fn is_well(node: &SimNode, pod: &PodHandle) -> bool {
    let pids: Vec<u32> = pod.status().pids().into_values().collect();
    let state = node.store().read().unwrap();
    let mut mine = state.processes.iter().filter(|it| pids.contains(&it.id.pid.unsigned_abs()));
    mine.next().is_some_and(|process| process.sticky_error.is_none())
}

const LINGERS: [&str; 6] = ["cuda-sample", "--alloc", "1Gi", "--hold", "forever", "--linger"];

/// A pod that the API knows, so that it can have Events.
async fn known(node: &SimNode, name: &str, command: &[&str]) -> PodHandle {
    let mut spec = bound(name, 1, command);
    spec["spec"]["restartPolicy"] = "Always".into();
    hold_bound(node, spec).await
}

async fn server_of(node: &SimNode, index: usize) -> i32 {
    let has_server = |gpu: &GpuStatus| gpu.daemon.as_ref().is_some_and(|it| it.server.is_some());
    card(node, index, "with a server", has_server).await.daemon.unwrap().server.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_on_one_card_is_told_to_its_pods_ends_who_lingers_and_spares_the_other_card() {
    let node = running(setup(&["--fault-grace", "2"]), 4).await;
    let mut pods = Vec::new();
    for n in 0..8 {
        pods.push(known(&node, &format!("pod-{n}"), &LINGERS).await);
    }
    let (hit, spared): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| card_of(pod) == 0);
    assert_eq!((hit.len(), spared.len()), (4, 4));
    let before: Vec<_> = hit.iter().map(|pod| pod.status().pids()).collect();
    let server = server_of(&node, 0).await;
    let uuid = Setup::two_cards().cards[0].1;
    mpshare_sim_state::mps::raise_fault(node.store(), server, uuid, 700).unwrap();
    let faulty = |gpu: &GpuStatus| gpu.state == GpuState::Fault;
    card(&node, 0, "in a fault", faulty).await;
    for pod in &hit {
        pod_event(&node, pod, "ServerFault").await;
        pod_event(&node, pod, "LingererEnded").await;
    }
    // Their containers start again, and only then: the card is theirs again.
    ready(&node, 0).await;
    for (pod, before) in hit.iter().zip(&before) {
        wait_or("it runs again", || logs(&node), || is_well(&node, pod)).await;
        assert_ne!(pod.status().pids(), *before);
    }
    assert_eq!(server_of(&node, 0).await, server);
    for pod in &spared {
        assert!(is_well(&node, pod));
        assert_eq!(pod.status().containers["c"].restarts, 0);
        assert_eq!(node.kube().events_of("Pod", &pod.spec().name), [] as [serde_json::Value; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_offers_again_within_five_seconds_of_its_last_hit_clients_end() {
    let node = running(one_card(&["--fault-grace", "60"]), 4).await;
    let lingers = known(&node, "lingers", &LINGERS).await;
    let server = server_of(&node, 0).await;
    let uuid = Setup::two_cards().cards[0].1;
    mpshare_sim_state::mps::raise_fault(node.store(), server, uuid, 700).unwrap();
    node.kubelet().wait_allocatable(GPU, 0, PATIENCE).await.unwrap();
    lingers.force_delete();
    lingers.wait_gone(PATIENCE).await.unwrap();
    let ended = Instant::now();
    node.kubelet().wait_allocatable(GPU, 4, PATIENCE).await.unwrap();
    assert!(ended.elapsed() < Duration::from_secs(5), "{:?}\n{}", ended.elapsed(), logs(&node));
}

const QUICK: [&str; 4] = ["--canary-period", "4", "--canary-deadline", "1"];

fn wedge(node: &SimNode, server: i32) {
    node.store().update(|state| state.faults.wedged_servers.push(server)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_nobody_is_found_and_replaced_once_its_clients_have_ended() {
    let node = running(one_card(&QUICK), 2).await;
    let lives = hold(&node, client("lives", 1, "1Gi")).await;
    let server = server_of(&node, 0).await;
    wedge(&node, server);
    let is_told =
        |gpu: &GpuStatus| gpu.reason.as_ref().is_some_and(|reason| reason.code == "ServerWedged");
    let told = card(&node, 0, "told to be wedged", is_told).await;
    assert_eq!(told.state, GpuState::Fault);
    assert!(told.reason.unwrap().message.contains("serves its 1 clients"));
    node.kubelet().wait_allocatable(GPU, 0, PATIENCE).await.unwrap();
    // A healthy client isn't lost for it.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(is_well(&node, &lives));
    assert_eq!(server_of(&node, 0).await, server);
    lives.force_delete();
    lives.wait_gone(PATIENCE).await.unwrap();
    node.kubelet().wait_allocatable(GPU, 2, PATIENCE).await.unwrap();
    let gpu = ready(&node, 0).await;
    assert_ne!(gpu.daemon.as_ref().unwrap().server, Some(server));
    assert!(finding(&gpu, "ServerReplaced").is_some(), "{gpu:#?}");
    assert_eq!(finding(&gpu, "TamperedWith"), None);
    hold(&node, client("later", 1, "1Gi")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wedged_server_that_takes_clients_again_is_kept() {
    let node = running(one_card(&QUICK), 2).await;
    let lives = hold(&node, client("lives", 1, "1Gi")).await;
    let server = server_of(&node, 0).await;
    wedge(&node, server);
    card(&node, 0, "in a fault", |gpu| gpu.state == GpuState::Fault).await;
    node.store().update(|state| state.faults.wedged_servers.clear()).unwrap();
    let gpu = ready(&node, 0).await;
    assert_eq!(gpu.daemon.unwrap().server, Some(server));
    assert!(is_well(&node, &lives));
}

#[tokio::test(flavor = "multi_thread")]
async fn canaries_on_a_card_that_is_full_disturb_nobody_and_are_nobodys_process() {
    let node = running(one_card(&["--canary-period", "1", "--canary-deadline", "20"]), 2).await;
    let mut pods = Vec::new();
    for name in ["a", "b"] {
        pods.push(hold(&node, client(name, 1, "7000Mi")).await);
    }
    let log = server_log(&node);
    let flown = || std::fs::read_to_string(&log).unwrap().matches("Worker created").count();
    let before = flown();
    let more = || {
        let gpu = node.status().unwrap().gpus.remove(0);
        assert_eq!(gpu.state, GpuState::Ready, "{gpu:#?}");
        assert_eq!(gpu.findings, [], "{gpu:#?}");
        assert!(gpu.daemon.unwrap().clients.len() <= 2);
        flown() >= before + 5
    };
    wait_or("five canaries have flown", || logs(&node), more).await;
    assert!(pods.iter().all(|pod| is_well(&node, pod)));
}

fn server_log(node: &SimNode) -> std::path::PathBuf {
    let daemon = node.status().unwrap().gpus.remove(0).daemon.unwrap();
    std::path::Path::new(&daemon.pipe_directory).with_file_name("log").join("server.log")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_supervisor_leaves_no_canary_behind() {
    let mut node = running(one_card(&["--canary-period", "1", "--canary-deadline", "60"]), 2).await;
    let server = server_of(&node, 0).await;
    wedge(&node, server);
    let canary = || {
        let supervisor = node.role_pid(Role::Supervisor)?;
        let children = format!("/proc/{supervisor}/task");
        let tasks = std::fs::read_dir(children).ok()?.flatten();
        let children =
            tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        let all: Vec<String> = children
            .flat_map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
            .collect();
        all.into_iter().find(|pid| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.contains("mps-canary")
        })
    };
    wait_or("a canary waits", || logs(&node), || canary().is_some()).await;
    let pid = canary().unwrap();
    node.end_role(Role::Supervisor, Signal::KILL).unwrap();
    wait_or(
        "it is gone",
        || logs(&node),
        || {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            !line.contains("mps-canary")
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_whose_server_was_killed_are_told() {
    let node = running(one_card(&[]), 2).await;
    let hit = known(&node, "hit", &LINGERS[..5]).await;
    let has_client = |gpu: &GpuStatus| gpu.daemon.as_ref().is_some_and(|it| it.clients.len() == 1);
    let gpu = card(&node, 0, "with a client", has_client).await;
    let server = gpu.daemon.unwrap().server.unwrap();
    kill_process(Pid::from_raw(server).unwrap(), Signal::KILL).unwrap();
    pod_event(&node, &hit, "ServerLost").await;
    wait_or("it runs again", || logs(&node), || is_well(&node, &hit)).await;
}

/// What a container that is root sends to its daemon's socket: it has the directory mounted.
fn tenant_says(node: &SimNode, commands: &str) -> std::process::Child {
    let daemon = node.status().unwrap().gpus.remove(0).daemon.unwrap();
    let mut front_end = node.program("nvidia-cuda-mps-control");
    front_end.env("CUDA_MPS_PIPE_DIRECTORY", &daemon.pipe_directory);
    let mut child = front_end
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, format!("{commands}\n").as_bytes()).unwrap();
    child
}

/// Says it until nobody else has the daemon's one session.
fn tenant_is_heard(node: &SimNode, commands: &str) {
    let log = server_log(node).with_file_name("control.log");
    let first = format!("Cmd:{}", commands.lines().next().unwrap());
    let until = Instant::now() + PATIENCE;
    while !std::fs::read_to_string(&log).unwrap().contains(&first) {
        assert!(Instant::now() < until, "{}", logs(node));
        drop(tenant_says(node, commands).wait());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_that_a_tenant_raised_are_told_put_right_and_over_commit_nothing() {
    let rules = ["--over-share", "evict-process", "--over-share-grace", "1"];
    let node = running(one_card(&rules), 2).await;
    let neighbour = hold(&node, client("neighbour", 1, "7000Mi")).await;
    let attacker = hold(&node, client("attacker", 1, "1Gi")).await;
    let server = server_of(&node, 0).await;
    let raise = format!(
        "set_default_device_pinned_mem_limit 0 100G\nset_device_pinned_mem_limit {server} 0 100G"
    );
    tenant_is_heard(&node, &raise);
    let is_told = |gpu: &GpuStatus| finding(gpu, "TamperedWith").is_some();
    let gpu = card(&node, 0, "told of it", is_told).await;
    assert!(finding(&gpu, "TamperedWith").unwrap().contains("_pinned_mem_limit"), "{gpu:#?}");
    // A process that drops its own limit gets no more than the share now.
    let greedy = ["cuda-sample", "--until-oom", "64Mi", "--hold", "forever"];
    let late = pod("late").container("c").gpus(GPU, 1).command(greedy);
    attacker.force_delete();
    attacker.wait_gone(PATIENCE).await.unwrap();
    let late = late.env("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "");
    let late = hold(&node, late).await;
    let state = node.store().read().unwrap();
    let pid = late.status().pids()["c"];
    let process = state.processes.iter().find(|it| it.id.pid.unsigned_abs() == pid).unwrap();
    assert!(process.used_mib <= 7680, "{process:?}");
    assert!(is_well(&node, &neighbour));
    ready(&node, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quit_of_a_tenant_is_told_ends_no_client_and_is_healed_when_the_last_one_ends() {
    let node = running(one_card(&[]), 2).await;
    let lives = hold(&node, client("lives", 1, "1Gi")).await;
    let daemon = ready(&node, 0).await.daemon.unwrap().pid;
    let mut tenant = tenant_says(&node, "quit");
    let is_told =
        |gpu: &GpuStatus| gpu.reason.as_ref().is_some_and(|reason| reason.code == "DaemonQuitting");
    let gpu = card(&node, 0, "told to be quitting", is_told).await;
    assert_eq!(gpu.state, GpuState::Draining);
    assert!(finding(&gpu, "TamperedWith").unwrap().contains("`quit`"));
    // The unit that is held, and no free one.
    node.kubelet().wait_allocatable(GPU, 1, PATIENCE).await.unwrap();
    assert!(is_well(&node, &lives));
    assert_eq!(lives.status().phase, Phase::Running);
    lives.force_delete();
    lives.wait_gone(PATIENCE).await.unwrap();
    let is_new = |gpu: &GpuStatus| {
        gpu.state == GpuState::Ready && gpu.daemon.as_ref().is_some_and(|it| it.pid != daemon)
    };
    card(&node, 0, "ready with a new daemon", is_new).await;
    tenant.wait().unwrap();
    hold(&node, client("later", 1, "1Gi")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_a_tenant_shuts_down_is_told_of_and_comes_back() {
    let node = running(one_card(&[]), 2).await;
    let hit = known(&node, "hit", &LINGERS[..5]).await;
    let has_client = |gpu: &GpuStatus| gpu.daemon.as_ref().is_some_and(|it| it.clients.len() == 1);
    card(&node, 0, "with a client", has_client).await;
    let server = server_of(&node, 0).await;
    tenant_is_heard(&node, &format!("shutdown_server {server} -f"));
    pod_event(&node, &hit, "ServerLost").await;
    let is_told = |gpu: &GpuStatus| finding(gpu, "TamperedWith").is_some();
    card(&node, 0, "told of it", is_told).await;
    wait_or("it runs again", || logs(&node), || is_well(&node, &hit)).await;
    let kinds = |kind: ProcessKind| {
        node.store().read().unwrap().processes.iter().filter(|it| it.kind == kind).count()
    };
    assert_eq!(kinds(ProcessKind::MpsServer), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_at_its_start_does_not_keep_a_card_from_another_config() {
    let node = running(one_card(&["--server-start-deadline", "5"]), 2).await;
    node.store().update(|state| state.faults.server_hangs_at_start = true).unwrap();
    let server = server_of(&node, 0).await;
    kill_process(Pid::from_raw(server).unwrap(), Signal::KILL).unwrap();
    card(&node, 0, "starting a server", |gpu| gpu.state == GpuState::Starting).await;
    // The card is one whole unit now, and needs no daemon.
    label(&node, 1).await;
    node.store().update(|state| state.faults.server_hangs_at_start = false).unwrap();
    let is_whole = |gpu: &GpuStatus| gpu.state == GpuState::Ready && gpu.daemon.is_none();
    card(&node, 0, "whole", is_whole).await;
    let state = node.store().read().unwrap();
    assert!(state.processes.iter().all(|process| process.kind != ProcessKind::MpsServer));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quit_that_waits_for_a_server_that_hangs_is_healed_by_a_new_supervisor_too() {
    let mut node = running(one_card(&["--server-start-deadline", "60"]), 2).await;
    node.store().update(|state| state.faults.server_hangs_at_start = true).unwrap();
    let server = server_of(&node, 0).await;
    kill_process(Pid::from_raw(server).unwrap(), Signal::KILL).unwrap();
    let is_starting = |gpu: &GpuStatus| gpu.state == GpuState::Starting;
    let daemon = card(&node, 0, "starting a server", is_starting).await.daemon.map(|it| it.pid);
    let pipe = node.mps_root().path().join("nvidia.com/gpu/GPU-cb1213a3/pipe");
    let mut front_end = node.program("nvidia-cuda-mps-control");
    front_end.env("CUDA_MPS_PIPE_DIRECTORY", &pipe).stdin(std::process::Stdio::piped());
    let log = pipe.with_file_name("log").join("control.log");
    let mut tenant = None;
    let until = Instant::now() + PATIENCE;
    while !std::fs::read_to_string(&log).unwrap().contains("Cmd:quit") {
        assert!(Instant::now() < until, "{}", logs(&node));
        let mut child = front_end.spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"quit\n").ok();
        tokio::time::sleep(Duration::from_millis(50)).await;
        tenant.replace(child).map(|mut before: std::process::Child| before.wait());
    }
    node.end_role(Role::Supervisor, Signal::KILL).unwrap();
    node.store().update(|state| state.faults.server_hangs_at_start = false).unwrap();
    node.start_role(Role::Supervisor).unwrap();
    let is_new = |gpu: &GpuStatus| {
        gpu.state == GpuState::Ready && gpu.daemon.as_ref().map(|it| it.pid) != daemon
    };
    let until = Instant::now() + 2 * PATIENCE;
    while !node.status().is_some_and(|status| is_new(&status.gpus[0])) {
        assert!(Instant::now() < until, "{:#?}\n{}", node.status(), logs(&node));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tenant.map(|mut child| child.wait());
}
