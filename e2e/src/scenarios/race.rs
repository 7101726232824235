//! A hundred pods of equal and different sizes at once on one node of eight cards, while pods are
//! deleted and whatever is between them and their cards is restarted.
//!
//! At every look no card has more shares than memory, by the simulator's accounting. In the end
//! every pod runs, with annotations that say what the kubelet says, or waits with a reason.

#![expect(
    clippy::indexing_slicing,
    reason = "indexing a JSON value yields null, it does not panic"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use mpshare_api::pod::Pod;
use mpshare_api::pod_allocation;
use mpshare_kubelet::pod_resources;
use serde_json::{Value, json};

use super::{EIGHT_CARDS, await_units_of_memory, end_sharing_by_memory, our_pod, share_by_memory};
use crate::clients::count_within_limits;
use crate::cluster::Cluster;
use crate::pods::{self, CUDA_IMAGE};
use crate::wait::eventually;

const RESOURCE: &str = "aliyun.com/gpu-mem";
const ALLOCATION: &str = "mpshare.io/allocation";
const ASSIGNED: &str = "ALIYUN_COM_GPU_MEM_ASSIGNED";

/// All units of the node.
const UNITS: u32 = 8 * 15;
const PODS: u32 = 100;

/// What pods ask for: most of them the same.
const SIZES: [u32; 10] = [1, 2, 3, 5, 7, 7, 7, 7, 10, 15];

/// The same run each time, as far as one machine's can be.
const SEED: u64 = 20_261_130;

const PATIENCE: Duration = Duration::from_mins(2);

pub(super) fn of_a_hundred(cluster: &mut Cluster) -> Result<()> {
    share_by_memory(cluster, EIGHT_CARDS, UNITS)?;
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut race = Race { names: Vec::new(), created: 0, looks: 0, most: 0 };
    race.create(cluster, &mut random, PODS)?;
    for round in 0..8 {
        race.delete_some(cluster, &mut random)?;
        race.create(cluster, &mut random, 5)?;
        race.disturb(cluster, round)?;
        race.settle(cluster)?;
        race.look(cluster)?;
    }
    let (running, waiting) = race.all_end_well(cluster)?;
    println!(
        "    {} pods were created; {} looks, at most {} clients at a time; in the end {running} run where their annotations say and {waiting} wait with a reason",
        race.created, race.looks, race.most
    );
    pods::delete_all(cluster)?;
    end_sharing_by_memory(cluster, EIGHT_CARDS)
}

struct Race {
    /// Of the pods that weren't deleted.
    names: Vec<String>,
    created: u32,
    looks: u32,
    most: usize,
}

impl Race {
    fn create(&mut self, cluster: &Cluster, random: &mut fastrand::Rng, count: u32) -> Result<()> {
        let items: Vec<Value> = (0..count)
            .map(|_| {
                let units = random.choice(SIZES).unwrap_or(1);
                let name = format!("race-{}-of-{units}", self.created);
                self.created += 1;
                self.names.push(name.clone());
                manifest(&name, units)
            })
            .collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        cluster.apply(&list.to_string()).map(drop)
    }

    /// Ten of them, three by force.
    fn delete_some(&mut self, cluster: &Cluster, random: &mut fastrand::Rng) -> Result<()> {
        for n in 0..10 {
            if self.names.is_empty() {
                return Ok(());
            }
            let name = self.names.swap_remove(random.usize(..self.names.len()));
            let how: &[&str] =
                if n < 3 { &["--force", "--grace-period=0"] } else { &["--wait=false"] };
            cluster.kubectl(&[&["delete", "pod", &name], how].concat())?;
            self.look(cluster)?;
        }
        Ok(())
    }

    /// Restarts a part. The extender and the API server may be away at any moment; pods that a
    /// kubelet admits while it has no device plugin are failed by the kubelet itself
    /// (facts/kubernetes.md 1.5, 1.8), so that these two are restarted while no pod is on its way.
    fn disturb(&mut self, cluster: &mut Cluster, round: u32) -> Result<()> {
        match round % 4 {
            0 => {
                cluster.control_plane.end_extender()?;
                self.look(cluster)?;
                cluster.control_plane.start_extender()
            }
            1 => {
                cluster.control_plane.end_api_server()?;
                self.look(cluster)?;
                cluster.control_plane.start_api_server()
            }
            2 => {
                self.settle(cluster)?;
                let pod = our_pod(cluster, "nvidia-device-plugin-daemonset", EIGHT_CARDS)?;
                kill_plugin(cluster)?;
                self.look(cluster)?;
                await_restarted(cluster, &pod)
            }
            _ => {
                self.settle(cluster)?;
                cluster.restart_kubelet(EIGHT_CARDS)?;
                self.look(cluster)?;
                await_units_of_memory(cluster, EIGHT_CARDS, UNITS)
            }
        }
    }

    /// Waits until each pod runs or is known not to fit.
    fn settle(&mut self, cluster: &Cluster) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.look(cluster)?;
            let unsettled = pods_of(cluster)?.iter().find_map(unsettled);
            let Some(why) = unsettled else { return Ok(()) };
            ensure!(Instant::now() < deadline, "{why}");
        }
    }

    /// No card has more shares than memory, and no pod was failed by the kubelet.
    fn look(&mut self, cluster: &Cluster) -> Result<()> {
        let node = cluster.nodes.iter().find(|node| node.name() == EIGHT_CARDS);
        let count = count_within_limits(node.context("no node of eight cards")?)?;
        let phases = "jsonpath={range .items[*]}{.metadata.name} {.status.phase} {.status.reason} {.metadata.deletionTimestamp}{\"\\n\"}{end}";
        // The API server may be away.
        let pods = cluster.kubectl(&["get", "pods", "-l", "e2e=user", "-o", phases]);
        for line in pods.as_deref().unwrap_or_default().lines() {
            // One that is being deleted is killed.
            if line.contains(" Failed") && line.ends_with(' ') {
                let name = line.split(' ').next().unwrap_or_default();
                let log = cluster.kubectl(&["logs", name]).unwrap_or_default();
                bail!("{line}\n{log}");
            }
        }
        self.looks += 1;
        self.most = self.most.max(count);
        Ok(())
    }

    /// How many run as their annotations say, and how many wait.
    fn all_end_well(&self, cluster: &Cluster) -> Result<(usize, usize)> {
        let said = "annotations say what the kubelet says";
        eventually(said, PATIENCE, || Ok(untrue(cluster)?.is_empty()))
            .with_context(|| format!("{:?}", untrue(cluster)))?;
        let pods = pods_of(cluster)?;
        ensure!(pods.len() == self.names.len(), "{} of {} pods", pods.len(), self.names.len());
        let running = pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count();
        for pod in pods.iter().filter(|pod| pod["status"]["phase"] != "Running") {
            let condition = scheduled(pod);
            let why = condition["message"].as_str().unwrap_or_default();
            ensure!(why.contains("of 15 GiB"), "`{}` waits for `{why}`", pod["metadata"]["name"]);
        }
        Ok((running, pods.len() - running))
    }
}

fn manifest(name: &str, units: u32) -> Value {
    // Far from its share: what counts here is who has which.
    let memory = format!("{}Mi", units * 512);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"e2e": "user"}},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": EIGHT_CARDS},
            "terminationGracePeriodSeconds": 1,
            "restartPolicy": "Never",
            "containers": [{
                "name": "cuda", "image": CUDA_IMAGE,
                "command": ["cuda-sample", "--alloc", memory, "--hold", "forever"],
                "resources": {"limits": {RESOURCE: units}},
            }],
        },
    })
}

fn pods_of(cluster: &Cluster) -> Result<Vec<Value>> {
    let list = cluster.kubectl(&["get", "pods", "-l", "e2e=user", "-o", "json"])?;
    let mut list: Value = serde_json::from_str(&list)?;
    Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

fn scheduled(pod: &Value) -> Value {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let mut all = conditions.filter(|condition| condition["type"] == "PodScheduled");
    all.next().cloned().unwrap_or_default()
}

/// Why a pod neither runs nor waits for room; a failed one never will.
fn unsettled(pod: &Value) -> Option<String> {
    let name = &pod["metadata"]["name"];
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        return Some(format!("{name} isn't gone yet"));
    }
    let reason = scheduled(pod)["reason"].clone();
    match pod["status"]["phase"].as_str() {
        Some("Running") => None,
        Some("Pending") if reason == "Unschedulable" => None,
        _ => Some(format!("{name}: {}", pod["status"])),
    }
}

/// Pods whose annotations don't say what the kubelet says.
fn untrue(cluster: &Cluster) -> Result<Vec<String>> {
    let node = cluster.nodes.iter().find(|node| node.name() == EIGHT_CARDS);
    let socket = node.context("no node of eight cards")?.pod_resources_socket();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let held = runtime.block_on(async {
        let mut lister = pod_resources::lister(&socket)?;
        anyhow::Ok(pod_resources::list(&mut lister, Duration::from_secs(5)).await?)
    })?;
    let mut cards: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (holder, ids) in held.into_iter().filter(|(holder, _)| holder.resource == RESOURCE) {
        cards.entry(holder.pod).or_default().extend(ids);
    }
    let mut untrue = Vec::new();
    for pod in pods_of(cluster)?.iter().filter(|pod| pod["status"]["phase"] == "Running") {
        let slim: Pod = serde_json::from_value(pod.clone())?;
        let name = slim.metadata.name;
        let Some(ids) = cards.get(&name) else { bail!("the kubelet lists no units of `{name}`") };
        let gpus: BTreeSet<&str> = ids.iter().filter_map(|id| id.split("::").next()).collect();
        let text = slim.metadata.annotations.get(ALLOCATION).cloned().unwrap_or_default();
        let said = pod_allocation::read(&text).unwrap_or_default();
        let said: Vec<(String, u64)> =
            said.0.values().flatten().map(|(gpu, units)| (gpu.to_string(), *units)).collect();
        let units = u64::try_from(ids.len())?;
        let truth: Vec<(String, u64)> = gpus.iter().map(|gpu| ((*gpu).to_owned(), units)).collect();
        let is_assigned = slim.metadata.annotations.get(ASSIGNED).is_some_and(|it| it == "true");
        if said != truth || !is_assigned {
            untrue.push(format!("`{name}` is on {truth:?} and says {said:?}, {is_assigned}"));
        }
    }
    Ok(untrue)
}

fn kill_plugin(cluster: &Cluster) -> Result<()> {
    let node = cluster.nodes.iter().find(|node| node.name() == EIGHT_CARDS);
    let node = node.context("no node of eight cards")?;
    let plugin = node.pids_of("mpshare device-plugin")?;
    node.kill(*plugin.first().context("no device plugin")?)
}

/// Waits until a pod of ours has all containers again and the node its units.
fn await_restarted(cluster: &Cluster, pod: &str) -> Result<()> {
    let ready = "jsonpath={.status.containerStatuses[*].ready}";
    // What is seen first may still be what was before.
    cluster.await_heartbeat(EIGHT_CARDS)?;
    eventually("the device plugin is back", PATIENCE, || {
        let ready = cluster.kubectl(&["get", "pod", "-n", "kube-system", pod, "-o", ready])?;
        Ok(!ready.contains("false"))
    })?;
    await_units_of_memory(cluster, EIGHT_CARDS, UNITS)
}
