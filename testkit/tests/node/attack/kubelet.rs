//! Races of pods, configs, restarts and kills.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use mpshare_api::{Allocations, read_document};
use mpshare_testkit::fakekubelet::{Phase, PodHandle, PodSpec, pod};
use mpshare_testkit::simnode::{Role, Setup, SimNode};
use rustix::process::Signal;

use super::{check, check_for};
use crate::scene::{GPU, PATIENCE, client, hold, label, logs, running, wait_or};

fn is_holding(pod: &PodHandle) -> bool {
    pod.log("c").contains("holding")
}

fn recorded(node: &SimNode) -> BTreeSet<String> {
    let ledger = read_document::<Allocations>(&node.mps_root().allocations()).unwrap();
    ledger.unwrap_or_default().records.into_iter().flat_map(|record| record.ids).collect()
}

/// A client that lives as long as it may after it was told to end.
fn stubborn(name: &str) -> PodSpec {
    let script = "trap '' TERM; cuda-sample --alloc 1Gi --hold forever & wait; wait";
    pod(name).container("c").gpus(GPU, 1).shell(script)
}

#[tokio::test(flavor = "multi_thread")]
async fn of_twenty_pods_for_eight_units_eight_get_one() {
    let node = running(Setup::two_cards(), 4).await;
    let pods: Vec<PodHandle> =
        (0..20).map(|n| node.kubelet().admit(client(&format!("p{n}"), 1, "1Gi"))).collect();
    let failed = || pods.iter().filter(|pod| pod.status().phase == Phase::Failed).count();
    let until = Instant::now() + PATIENCE;
    while pods.iter().filter(|pod| is_holding(pod)).count() + failed() < 20 {
        check(&node);
        assert!(Instant::now() < until, "{}", logs(&node));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(failed(), 12, "{}", logs(&node));
    check(&node);
}

/// UIDs of pods whose programs have a context now.
fn present(node: &SimNode, pods: &[PodHandle]) -> Vec<String> {
    let state = node.store().read().unwrap();
    let cgroup = |pid: i32| std::fs::read_to_string(node.path().join(format!("proc/{pid}/cgroup")));
    let cgroups: Vec<String> =
        state.processes.iter().filter_map(|process| cgroup(process.id.pid).ok()).collect();
    let uids = pods.iter().map(|pod| pod.uid().to_owned());
    uids.filter(|uid| cgroups.iter().any(|text| text.replace('_', "-").contains(uid))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn successors_at_full_rate_never_meet_their_predecessors() {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let node = running(Setup::two_cards(), 2).await;
    let mut pods: Vec<PodHandle> = Vec::new();
    let mut ids = std::collections::BTreeMap::new();
    let mut started = BTreeSet::new();
    let until = Instant::now() + Duration::from_secs(7);
    let mut count = 0;
    while Instant::now() < until {
        if random.u8(0..12) == 0 {
            label(&node, random.usize(2..=4)).await;
        }
        let alive = pods.iter().filter(|pod| !pod.status().gone).count();
        if alive < 4 {
            count += 1;
            pods.push(node.kubelet().admit(stubborn(&format!("s{count}"))));
        }
        let holders: Vec<&PodHandle> = pods.iter().filter(|pod| !pod.status().gone).collect();
        if !holders.is_empty() && random.u8(0..3) == 0 {
            holders[random.usize(0..holders.len())].force_delete();
        }
        for pod in &pods {
            let held = pod.devices("c", GPU);
            if !held.is_empty() {
                ids.insert(pod.uid().to_owned(), held);
            }
        }
        let present = present(&node, &pods);
        started.extend(present.iter().cloned());
        let mut owned = BTreeSet::new();
        for id in present.iter().filter_map(|uid| ids.get(uid)).flatten() {
            assert!(owned.insert(id), "two owners of `{id}`, seed {seed}\n{}", logs(&node));
        }
        check(&node);
        tokio::time::sleep(Duration::from_millis(random.u64(5..60))).await;
    }
    assert!(started.len() > 4, "only {} of {count} started, seed {seed}", started.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_init_container_that_runs_long_keeps_its_share_through_a_config_change() {
    let node = running(Setup::two_cards(), 2).await;
    let command = ["cuda-sample", "--alloc", "6Gi", "--hold", "13s"];
    let spec = pod("slow").init_container("i").gpus(GPU, 1).command(command);
    let spec = spec.container("c").gpus(GPU, 1).command(["cuda-sample", "--hold", "forever"]);
    let slow = node.kubelet().admit(spec);
    wait_or("it runs", || slow.log("i"), || slow.log("i").contains("holding")).await;
    let ids = slow.devices("i", GPU);
    label(&node, 4).await;
    let others: Vec<PodHandle> =
        (0..10).map(|n| node.kubelet().admit(client(&format!("o{n}"), 1, "1Gi"))).collect();
    check_for(&node, Duration::from_millis(11_500), || {
        let recorded = recorded(&node);
        assert!(ids.iter().all(|id| recorded.contains(id)), "{recorded:?}\n{}", logs(&node));
    })
    .await;
    assert!(others.iter().filter(|pod| is_holding(pod)).count() >= 4);
    let running = slow.wait_phase(Phase::Running, PATIENCE).await;
    assert!(running.is_ok(), "{:?}\n{}", slow.status(), logs(&node));
    check(&node);
}

#[tokio::test(flavor = "multi_thread")]
async fn kubelet_restarts_and_plugin_kills_at_full_rate_end_well() {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut node = running(Setup::two_cards(), 2).await;
    let pod = hold(&node, client("old", 1, "1Gi")).await;
    let pids = pod.status().pids();
    for _ in 0..25 {
        if random.bool() {
            node.kubelet().restart().await.unwrap();
        } else {
            node.end_role(Role::DevicePlugin, Signal::KILL).unwrap();
            node.start_role(Role::DevicePlugin).unwrap();
        }
        tokio::time::sleep(Duration::from_millis(random.u64(0..150))).await;
        check(&node);
    }
    if let Err(error) = node.kubelet().wait_allocatable(GPU, 4, PATIENCE).await {
        panic!("seed {seed}: {error}\n{}", logs(&node));
    }
    assert_eq!(pod.status().pids(), pids, "seed {seed}");
    hold(&node, client("new", 1, "1Gi")).await;
    check(&node);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_that_changes_while_the_kubelet_is_down_is_there_when_it_is_back() {
    let node = running(Setup::two_cards(), 2).await;
    let pod = hold(&node, client("old", 1, "1Gi")).await;
    let pids = pod.status().pids();
    node.kubelet().stop().await;
    label(&node, 4).await;
    check_for(&node, Duration::from_secs(2), || ()).await;
    node.kubelet().resume().await.unwrap();
    if let Err(error) = node.kubelet().wait_allocatable(GPU, 7, PATIENCE).await {
        panic!("{error}\n{}", logs(&node));
    }
    assert_eq!(pod.status().pids(), pids);
    check(&node);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_killed_around_each_grant_forgets_no_share() {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut node = running(Setup::two_cards(), 4).await;
    let mut pods: Vec<PodHandle> = Vec::new();
    for n in 0..16 {
        let pod = node.kubelet().admit(client(&format!("p{n}"), 1, "64Mi"));
        tokio::time::sleep(Duration::from_micros(random.u64(0..12_000))).await;
        node.end_role(Role::DevicePlugin, Signal::KILL).unwrap();
        node.start_role(Role::DevicePlugin).unwrap();
        if let Err(error) = node.kubelet().wait_allocatable(GPU, 8, PATIENCE).await {
            panic!("seed {seed}: {error}\n{}", logs(&node));
        }
        check(&node);
        pods.push(pod);
        if pods.len() > 5 {
            pods.remove(0).force_delete();
        }
    }
    for pod in &pods {
        let settled = || is_holding(pod) || pod.status().phase == Phase::Failed;
        wait_or(
            "it runs or is refused",
            || format!("{:?}\n{}", pod.status(), logs(&node)),
            settled,
        )
        .await;
    }
    let held: BTreeSet<String> = pods
        .iter()
        .filter(|pod| pod.status().phase != Phase::Failed)
        .flat_map(|pod| pod.devices("c", GPU))
        .collect();
    let more = || format!("seed {seed}: {held:?} {:?}\n{}", recorded(&node), logs(&node));
    wait_or("the records say who holds what", more, || recorded(&node) == held).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_three_killed_at_once_again_and_again_lose_no_client() {
    let mut node = running(Setup::two_cards(), 3).await;
    let pods = [hold(&node, client("a", 2, "1Gi")).await, hold(&node, client("b", 1, "1Gi")).await];
    let before = pods.each_ref().map(|pod| pod.status().pids());
    for round in 0..8 {
        label(&node, 2 + round % 3).await;
        tokio::time::sleep(Duration::from_millis(u64::try_from(round).unwrap() * 23)).await;
        for role in Role::ALL {
            node.end_role(role, Signal::KILL).unwrap();
        }
        check(&node);
        node.start_product().unwrap();
        tokio::time::sleep(Duration::from_millis(150)).await;
        check(&node);
        assert_eq!(pods.each_ref().map(|pod| pod.status().pids()), before, "{}", logs(&node));
    }
    label(&node, 3).await;
    if let Err(error) = node.kubelet().wait_allocatable(GPU, 6, PATIENCE).await {
        panic!("{error}\n{}", logs(&node));
    }
    hold(&node, client("new", 1, "1Gi")).await;
    check(&node);
}
