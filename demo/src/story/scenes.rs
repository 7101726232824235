//! The scenes of a node in replicas mode, in order. Each one looks at the world for what it claims.

use std::time::{Instant, SystemTime};

use anyhow::{Context as _, Result, ensure};
use mpshare_api::GpuState;
use mpshare_sim_state::SimProcess;
use mpshare_testkit::fakekubelet::{Amounts, PodHandle};
use mpshare_testkit::simnode::{NODE, Role};
use rustix::process::Signal;
use serde_json::Value;

use super::{PATIENCE, Story, tool};
use crate::manifests;
use crate::screen::Screen;

const CONFIG_LABEL: &str = "nvidia.com/device-plugin.config";

pub(super) type Details = Vec<String>;

/// Plays all scenes; `false` when one wasn't seen.
pub(super) async fn all(story: &mut Story, screen: &mut Screen) -> bool {
    screen.chapter("A node with two GPUs");
    scene!(screen, "the driver shows a T4 and a V100", cards(story));
    scene!(screen, "the ConfigMap of the TKE document is applied", configs(story).await);
    screen.chapter("Label mps-2x: every card is two units");
    scene!(screen, "2 cards become 4 units of nvidia.com/gpu", two_each(story).await);
    screen.chapter("Pods share a card, and their shares hold");
    scene!(screen, "two pods run on two cards, each on a half", inference_and_limits(story).await);
    scene!(screen, "a greedy pod on the T4 gets out of memory at its half", greedy(story).await);
    scene!(screen, "its neighbour on the T4 didn't notice", unharmed(story));
    screen.chapter("Label mps-4x, with all pods running");
    scene!(screen, "nothing dies, and the counts follow", four_each(story).await);
    scene!(screen, "a pod for 4x nodes gets a quarter of a card", quarter(story).await);
    scene!(screen, "nvidia-smi shows servers and M+C clients", smi(story));
    screen.chapter("Our own processes die");
    for role in Role::ALL {
        scene!(screen, &format!("kill -9 of {role}: no client lost"), killed(story, role).await);
    }
    scene!(
        screen,
        "a pod that ends gives its memory back, at today's size",
        recovered(story).await
    );
    true
}

fn cards(story: &Story) -> Result<Details> {
    let lines = tool(story, "nvidia-smi", &["-L"])?;
    ensure!(lines.len() == 2, "nvidia-smi lists {} cards", lines.len());
    Ok(lines)
}

async fn configs(story: &Story) -> Result<Details> {
    let map = manifests::apply(story.node.kube(), "tke/configmap.yaml").await?;
    let data = map.get("data").and_then(Value::as_object);
    let keys: Vec<&str> = data.into_iter().flatten().map(|(key, _)| key.as_str()).collect();
    Ok(vec![format!("nvidia-device-plugin-configs: {}", keys.join(", "))])
}

async fn two_each(story: &mut Story) -> Result<Details> {
    label(story, "mps-2x").await?;
    let start = Instant::now();
    story.node.start_product()?;
    let kubelet = story.node.kubelet();
    let list = kubelet.wait_allocatable("nvidia.com/gpu", 4, PATIENCE).await?;
    let took = list.map_or(0, |list| list.at.duration_since(start).as_millis());
    story.wait_for("the Node object shows 4", || story.counts() == (4, 4)).await?;
    Ok(vec![
        format!("kubectl label node {NODE} {CONFIG_LABEL}=mps-2x"),
        "nvidia.com/gpu:  4".to_owned(),
        format!("all three processes started cold; the kubelet had the units after {took} ms"),
    ])
}

async fn inference_and_limits(story: &mut Story) -> Result<Details> {
    let mut details = Vec::new();
    for (file, name) in [
        ("tke/pod-inference.yaml", "mps-inference-demo"),
        ("tke/pod-with-limits.yaml", "mps-with-limits"),
    ] {
        manifests::apply(story.node.kube(), file).await?;
        let pod = story.running(name, "holding").await?;
        let client = client(story, &pod)?;
        let (card, limit) = (client.gpu.get(..12).unwrap_or_default(), client.limit_mib);
        let limit = limit.with_context(|| format!("{name} has no limit"))?;
        let percent = f64::from(client.percent_tenths) / 10.0;
        details.push(format!("{name}: {card}, held to {limit} MiB and {percent} % by the driver"));
    }
    details.push(
        "mps-with-limits asks for 25 % of the threads and gets them; its plain-bytes memory limit \
         is a form that the driver passes over, so its share holds it"
            .to_owned(),
    );
    Ok(details)
}

/// What the driver knows of a pod's process.
pub(super) fn client(story: &Story, pod: &PodHandle) -> Result<SimProcess> {
    let pids = pod.status().pids();
    let state = story.node.store().read()?;
    let mut processes = state.processes.into_iter();
    processes
        .find(|process| pids.values().any(|pid| *pid == process.id.pid.unsigned_abs()))
        .with_context(|| format!("`{}` has no context", pod.spec().name))
}

async fn greedy(story: &mut Story) -> Result<Details> {
    let pod = start_greedy(story).await?;
    let client = client(story, &pod)?;
    let (used, limit) = (client.used_mib, client.limit_mib);
    ensure!(limit == Some(7680) && used <= 7680, "it has {used} MiB, limit {limit:?}");
    let log = pod.log("cuda-app");
    let line = log.lines().find(|line| line.contains("OUT_OF_MEMORY")).unwrap_or_default();
    Ok(vec![format!("greedy: {line}"), format!("{used} of 7680 MiB in use, context included")])
}

async fn start_greedy(story: &mut Story) -> Result<PodHandle> {
    manifests::apply(story.node.kube(), "demo/pod-greedy.yaml").await?;
    story.running("greedy", "CUDA_ERROR_OUT_OF_MEMORY").await
}

pub(super) fn unharmed(story: &Story) -> Result<Details> {
    let pids = story.clients()?;
    let state = story.node.store().read()?;
    let healthy = |pid: &u32| {
        let mut processes = state.processes.iter();
        processes.any(|p| p.id.pid.unsigned_abs() == *pid && p.sticky_error.is_none())
    };
    ensure!(pids.iter().all(healthy), "a client has lost its context");
    Ok(vec![format!("clients {pids:?} hold their memory")])
}

async fn four_each(story: &Story) -> Result<Details> {
    let before = story.clients()?;
    let start = Instant::now();
    label(story, "mps-4x").await?;
    // T4: two halves are held, nothing is left. V100: one half is held, two quarters are free.
    let kubelet = story.node.kubelet();
    let list = kubelet.wait_allocatable("nvidia.com/gpu", 5, PATIENCE).await?;
    let took = list.map_or(0, |list| list.at.duration_since(start).as_millis());
    ensure!(story.clients()? == before, "clients changed");
    story.wait_for("the Node object shows 8 and 5", || story.counts() == (8, 5)).await?;
    Ok(vec![
        format!("kubectl label node {NODE} {CONFIG_LABEL}=mps-4x --overwrite"),
        format!("kubelet told after {took} ms; clients {before:?} still hold their memory"),
        "8 units in all, 5 usable: 3 held by their pods at the old size, 2 quarters free"
            .to_owned(),
    ])
}

async fn quarter(story: &mut Story) -> Result<Details> {
    manifests::apply(story.node.kube(), "tke/pod-on-4x-node.yaml").await?;
    let pod = story.running("mps-on-4x-node", "holding").await?;
    let limit = pod.env("cuda-app").remove("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    let limit = limit.unwrap_or_default();
    ensure!(limit == "0=8192M", "its limit is `{limit}`");
    Ok(vec![format!("mps-on-4x-node: limit {limit}, a quarter of the V100's 32768 MiB")])
}

fn smi(story: &Story) -> Result<Details> {
    let lines = tool(story, "nvidia-smi", &[])?;
    let clients = lines.iter().filter(|line| line.contains("M+C")).count();
    ensure!(clients == story.pods.len(), "{clients} M+C rows for {} clients", story.pods.len());
    Ok(lines)
}

async fn killed(story: &mut Story, role: Role) -> Result<Details> {
    let before = story.clients()?;
    story.node.end_role(role, Signal::KILL)?;
    let start = (Instant::now(), SystemTime::now());
    story.node.start_role(role)?;
    let back = match role {
        Role::DevicePlugin => registered_again(story, start.0).await?,
        Role::Supervisor => reported_again(story, start.1).await?,
        Role::ConfigManager => chosen_again(story).await?,
        Role::SchedulerExtender => String::new(),
    };
    ensure!(story.clients()? == before, "clients changed");
    let state = story.node.store().read()?;
    ensure!(state.processes.iter().all(|p| p.sticky_error.is_none()), "a client lost its server");
    Ok(vec![format!("{} clients, the same PIDs; {back}", before.len())])
}

async fn registered_again(story: &Story, start: Instant) -> Result<String> {
    let kubelet = story.node.kubelet();
    let all = |amounts: &Amounts| amounts.allocatable == 5;
    let list = kubelet.wait_list("nvidia.com/gpu", start, PATIENCE, all).await?;
    let took = list.at.duration_since(start).as_millis();
    Ok(format!("registered again, all units back after {took} ms"))
}

async fn reported_again(story: &Story, start: SystemTime) -> Result<String> {
    let path = story.node.mps_root().status();
    let is_new = || {
        let written = std::fs::metadata(&path).and_then(|file| file.modified());
        let gpus = story.node.status().map(|status| status.gpus).unwrap_or_default();
        let is_ready = gpus.len() == 2 && gpus.iter().all(|gpu| gpu.state == GpuState::Ready);
        is_ready && written.is_ok_and(|at| at > start)
    };
    story.wait_for("both daemons are adopted", is_new).await?;
    Ok("both daemons adopted, their limits verified anew".to_owned())
}

/// A label that changes back at once: only a working process follows.
async fn chosen_again(story: &Story) -> Result<String> {
    for config in ["mps-2x", "mps-4x"] {
        label(story, config).await?;
        let is_chosen = || story.node.status().is_some_and(|status| status.config == config);
        story.wait_for("the config follows the label", is_chosen).await?;
    }
    let kubelet = story.node.kubelet();
    kubelet.wait_allocatable("nvidia.com/gpu", 5, PATIENCE).await?;
    Ok("it follows the label again".to_owned())
}

async fn recovered(story: &mut Story) -> Result<Details> {
    story.node.kube().delete("pods", "default", "greedy").await?;
    let place = story.pods.iter().position(|pod| pod.spec().name == "greedy");
    let ended = story.pods.remove(place.context("no greedy pod")?);
    ended.wait_gone(PATIENCE).await?;
    // Its half of the T4 becomes two quarters.
    story.node.kubelet().wait_allocatable("nvidia.com/gpu", 6, PATIENCE).await?;
    let pod = start_greedy(story).await?;
    let limit = client(story, &pod)?.limit_mib;
    ensure!(limit == Some(3840), "its limit is {limit:?} MiB");
    let violations = story.node.kubelet().violations();
    ensure!(violations.is_empty(), "a real kubelet would have suffered: {violations:?}");
    Ok(vec![
        "greedy ended: its half of the T4 is two free quarters".to_owned(),
        "greedy once more: held to 3840 MiB, a quarter".to_owned(),
    ])
}

async fn label(story: &Story, config: &str) -> Result<()> {
    story.node.kube().patch_node_label(NODE, CONFIG_LABEL, config).await?;
    Ok(())
}
