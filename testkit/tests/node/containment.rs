//! Processes that use more of a card than they were given.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mpshare_api::GpuStatus;
use mpshare_testkit::fakekubelet::{Phase, PodHandle, PodSpec, RestartPolicy, pod};
use mpshare_testkit::simnode::{NODE, Setup, SimNode};

use crate::scene::{
    GPU, PATIENCE, bound, card, client, control_log, hold, hold_bound, logs, pod_event,
    processes_of, running, wait_or,
};

/// A T4 with 15,360 MiB, of which each of two units is 7,680.
fn one_card(supervisor: &[&'static str]) -> Setup {
    let grace = ["--over-share-grace", "1"];
    let supervisor = supervisor.iter().copied().chain(grace).collect();
    Setup { cards: vec![Setup::two_cards().cards[0]], supervisor, ..Setup::two_cards() }
}

/// A pod of one unit with several processes that take `alloc` each.
fn several(name: &str, processes: &str, alloc: &str) -> PodSpec {
    let command = ["cuda-sample", "--alloc", alloc, "--processes", processes, "--hold", "forever"];
    pod(name).container("c").gpus(GPU, 1).command(command)
}

async fn has_processes(node: &SimNode, pod: &PodHandle, count: usize) -> BTreeSet<i32> {
    let what = format!("`{}` has {count} processes on the card", pod.spec().name);
    wait_or(&what, || logs(node), || processes_of(node, pod).len() == count).await;
    processes_of(node, pod)
}

/// The sentences of a code about the only card.
fn findings(gpu: &GpuStatus, code: &str) -> Vec<String> {
    let found = gpu.findings.iter().filter(|it| it.code == code);
    found.map(|it| it.message.clone()).collect()
}

async fn finding(node: &SimNode, code: &str) -> String {
    let told = card(node, 0, code, |gpu| !findings(gpu, code).is_empty()).await;
    findings(&told, code).remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_exceed_their_share_together_are_told_of_and_go_on() {
    let node = running(one_card(&[]), 2).await;
    let neighbour = hold(&node, several("neighbour", "2", "1Gi")).await;
    let greedy = hold(&node, several("greedy", "2", "4Gi")).await;
    let told = finding(&node, "ShareExceeded").await;
    let (used, uid) = (2 * (4096 + 312), greedy.uid());
    assert!(told.contains(&format!("pod `{uid}` uses {used} MiB")), "{told}");
    assert!(told.contains("more than 7680 MiB (its share)"), "{told}");
    let is_told = || node.kube().events_of("Node", NODE).iter().any(|it| it["message"] == *told);
    wait_or("an Event says so", || logs(&node), is_told).await;
    assert_eq!(processes_of(&node, &greedy).len(), 2);
    assert_eq!(processes_of(&node, &neighbour).len(), 2);
    let gpu = node.status().unwrap().gpus.remove(0);
    assert_eq!(gpu.findings.len(), 1, "{:?}", gpu.findings);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_process_past_the_share_is_ended_and_no_other() {
    let node = running(one_card(&["--over-share", "evict-process"]), 2).await;
    let neighbour = hold(&node, several("neighbour", "2", "1Gi")).await;
    let command = ["cuda-sample", "--alloc", "2Gi", "--processes", "4", "--hold", "forever"];
    let greedy = hold_bound(&node, bound("greedy", 1, &command)).await;
    let told = finding(&node, "ProcessEvicted").await;
    let left = has_processes(&node, &greedy, 3).await;
    let ended = told.strip_prefix("process ").unwrap().split(' ').next().unwrap();
    let ended: i32 = ended.parse().unwrap();
    assert!(left.iter().all(|pid| *pid < ended), "{told}: {left:?}");
    assert!(!Path::new(&format!("/proc/{ended}")).exists() || is_zombie(ended));
    // Killed with work in flight it might have wedged its neighbours.
    let daemon = node.status().unwrap().gpus.remove(0).daemon.unwrap();
    let command = format!("terminate_client {} {ended}", daemon.server.unwrap());
    let log = control_log(&daemon);
    assert!(log.contains(&command), "{log}");
    assert_eq!(processes_of(&node, &neighbour).len(), 2);
    assert_eq!(greedy.status().phase, Phase::Running);
    // Whoever describes the pod reads the same sentence there, with the numbers.
    let event = pod_event(&node, &greedy, "ProcessEvicted").await;
    assert_eq!(
        (event["type"].as_str(), event["message"].as_str()),
        (Some("Warning"), Some(&*told))
    );
    let (used, one) = (4 * (2048 + 312), 2048 + 312);
    for part in [&format!("process {ended}"), &format!("{used} MiB"), &format!("{one} MiB")] {
        assert!(told.contains(part), "{told}: {part}");
    }
    assert!(told.contains("7680 MiB"), "{told}");
    assert!(node.kube().events_of("Pod", "neighbour").iter().all(|it| it["message"] != *told));
}

fn is_zombie(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'))
}

#[tokio::test(flavor = "multi_thread")]
async fn of_forty_processes_as_many_stay_as_fit() {
    let node = running(one_card(&["--over-share", "evict-process"]), 2).await;
    let neighbour = hold(&node, several("neighbour", "2", "1Gi")).await;
    let bomb = node.kubelet().admit(several("bomb", "40", "200Mi"));
    let used = || -> u64 {
        let state = node.store().read().unwrap();
        let pids = processes_of(&node, &bomb);
        let mine = state.processes.iter().filter(|it| pids.contains(&it.id.pid));
        mine.map(|it| it.used_mib).sum()
    };
    wait_or("its share is exceeded", || logs(&node), || used() > 7680).await;
    let begin = Instant::now();
    let fits = || (7680 - 2 * (200 + 312)..=7680).contains(&used());
    // The last of the forty may have come late.
    wait_or("the others fit", || logs(&node), fits).await;
    let took = begin.elapsed();
    assert!(took >= Duration::from_secs(1), "before the grace period: {took:?}");
    assert_eq!(processes_of(&node, &neighbour).len(), 2);
    finding(&node, "ProcessEvicted").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_its_container_all_processes_of_a_greedy_one_end() {
    let node = running(one_card(&["--over-share", "evict-container"]), 2).await;
    let neighbour = hold(&node, several("neighbour", "2", "1Gi")).await;
    let greedy = hold(&node, several("greedy", "4", "2Gi").restart(RestartPolicy::Never)).await;
    greedy.wait_stopped(PATIENCE).await.unwrap();
    assert_eq!(processes_of(&node, &neighbour).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_dropped_its_limit_is_caught_by_what_it_uses() {
    let node = running(one_card(&["--over-share", "evict-process"]), 2).await;
    let neighbour = hold(&node, client("neighbour", 1, "3Gi")).await;
    let trap = client("trap", 1, "9Gi").env("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=2G,1=4G");
    let trap = hold(&node, trap).await;
    let told = finding(&node, "ProcessEvicted").await;
    assert!(told.contains(&format!("had {} MiB", 9 * 1024 + 312)), "{told}");
    has_processes(&node, &trap, 0).await;
    assert_eq!(processes_of(&node, &neighbour).len(), 1);
}

/// A program of the node itself, past Kubernetes.
struct HostProgram(Child);

impl HostProgram {
    fn start(node: &SimNode, arguments: &str) -> Self {
        let mut command = node.program("cuda-sample");
        command.args(arguments.split(' '));
        Self::spawn(node, command, "/user.slice/session-1.scope")
    }

    fn spawn(node: &SimNode, mut command: Command, cgroup: &str) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let directory = node.path().join("proc").join(child.id().to_string());
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
        Self(child)
    }

    fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for HostProgram {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_of_the_node_on_a_whole_card_is_named_and_goes_on() {
    let node = running(one_card(&[]), 1).await;
    let mut program = HostProgram::start(&node, "--alloc 1Gi --hold forever");
    let told = finding(&node, "OutsideShares").await;
    for part in [
        &format!("process {}", program.0.id()),
        "cuda-sample --alloc 1Gi --hold forever",
        "cgroup `/user.slice/session-1.scope`",
        &format!("uses {} MiB", 1024 + 312),
    ] {
        assert!(told.contains(part), "{told}: {part}");
    }
    let is_told = || node.kube().events_of("Node", NODE).iter().any(|it| it["message"] == *told);
    wait_or("an Event says so", || logs(&node), is_told).await;
    assert!(!program.has_ended());
    drop(program);
    let is_over = |gpu: &GpuStatus| gpu.findings.is_empty();
    card(&node, 0, "without a finding", is_over).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_kill_processes_without_a_share_end_and_those_with_one_go_on() {
    let node = running(one_card(&["--outsiders", "kill"]), 1).await;
    let holder = hold(&node, client("holder", 1, "2Gi")).await;
    let command = ["cuda-sample", "--alloc", "1Gi", "--hold", "forever"];
    let thief = hold_bound(&node, bound("thief", 0, &command)).await;
    let program = std::cell::RefCell::new(HostProgram::start(&node, "--alloc 1Gi --hold forever"));
    wait_or("it has ended", || logs(&node), || program.borrow_mut().has_ended()).await;
    thief.wait_stopped(PATIENCE).await.unwrap();
    let both = |gpu: &GpuStatus| findings(gpu, "OutsiderEnded").len() == 2;
    let told = card(&node, 0, "rid of both", both).await;
    let told = findings(&told, "OutsiderEnded").concat();
    assert!(told.contains("/user.slice/session-1.scope"), "{told}");
    assert!(told.contains(&format!("pod {}", thief.uid())), "{told}");
    // Though it asked for nothing of ours, and has ended by now.
    pod_event(&node, &thief, "OutsiderEnded").await;
    assert_eq!(processes_of(&node, &holder).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_of_the_node_among_mps_clients_is_named_too() {
    let node = running(one_card(&[]), 2).await;
    let holder = hold(&node, client("holder", 1, "2Gi")).await;
    let pipe = card(&node, 0, "with a daemon", |gpu| gpu.daemon.is_some()).await;
    let pipe = pipe.daemon.unwrap().pipe_directory;
    let mut command = node.program("cuda-sample");
    command.env("CUDA_MPS_PIPE_DIRECTORY", pipe);
    command.args(["--alloc", "1Gi", "--hold", "forever"]);
    let program = HostProgram::spawn(&node, command, "/system.slice/docker-ab.scope");
    let told = finding(&node, "OutsideShares").await;
    assert!(told.contains("/system.slice/docker-ab.scope"), "{told}");
    let is_summed = |gpu: &GpuStatus| gpu.outside_mib == 1024 + 312;
    card(&node, 0, "told what is outside of shares", is_summed).await;
    drop(program);
    card(&node, 0, "free of it", |gpu| gpu.outside_mib == 0).await;
    assert_eq!(processes_of(&node, &holder).len(), 1);
}
