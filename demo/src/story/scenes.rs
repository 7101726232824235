//! The scenes, in order. Each one looks at the world for what it claims.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use mpshare_testkit::simnode::{NODE, Role};
use rustix::process::Signal;

use super::{PATIENCE, Story};
use crate::manifests;
use crate::screen::Screen;

const CONFIG_LABEL: &str = "nvidia.com/device-plugin.config";

type Details = Vec<String>;

/// Plays all scenes; `false` when one wasn't seen: what follows builds on it.
pub(super) async fn all(story: &mut Story, screen: &mut Screen) -> bool {
    macro_rules! scene {
        ($title:expr, $scene:expr) => {
            let start = Instant::now();
            match $scene.await {
                Ok(details) => screen.seen($title, details, start.elapsed()),
                Err(error) => {
                    screen.missed($title, &format!("{error:#}"), start.elapsed());
                    return false;
                }
            }
        };
    }
    screen.chapter("A node with two GPUs");
    scene!("the driver shows a T4 and a V100", cards(story));
    scene!("the ConfigMap of the TKE document is applied", configs(story));
    screen.chapter("Label mps-2x: every card is two units");
    scene!("2 cards become 4 units of nvidia.com/gpu", two_each(story));
    screen.chapter("Pods share a card, and their shares hold");
    scene!("two pods run on two cards, each on a half", inference_and_limits(story));
    scene!("a greedy pod on the T4 gets out of memory at its half", greedy(story));
    scene!("its neighbour on the T4 didn't notice", unharmed(story));
    screen.chapter("Label mps-4x, with all pods running");
    scene!("nothing dies, and the counts follow", four_each(story));
    scene!("a pod for 4x nodes gets a quarter of a card", quarter(story));
    scene!("nvidia-smi shows servers and M+C clients", smi(story));
    screen.chapter("Our own processes die");
    for role in Role::ALL {
        scene!(&format!("kill -9 of {role}: no client lost"), killed(story, role));
    }
    scene!("the node still takes new pods", recovered(story));
    true
}

async fn cards(story: &Story) -> Result<Details> {
    let lines = tool(story, "nvidia-smi", &["-L"])?;
    ensure!(lines.len() == 2, "nvidia-smi lists {} cards", lines.len());
    Ok(lines)
}

async fn configs(story: &Story) -> Result<Details> {
    let map = manifests::apply(story.node.kube(), "tke/configmap.yaml").await?;
    let keys: Vec<&str> =
        map["data"].as_object().into_iter().flatten().map(|(k, _)| k.as_str()).collect();
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
        let env = pod.env("cuda-app");
        let get = |key: &str| env.get(key).cloned().unwrap_or_default();
        details.push(format!(
            "{name}: {} limit {} at {} %",
            get("CUDA_VISIBLE_DEVICES").get(..12).unwrap_or_default(),
            get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"),
            get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"),
        ));
    }
    Ok(details)
}

async fn greedy(story: &mut Story) -> Result<Details> {
    manifests::apply(story.node.kube(), "demo/pod-greedy.yaml").await?;
    let pod = story.running("greedy", "CUDA_ERROR_OUT_OF_MEMORY").await?;
    let pids = pod.status().pids();
    let state = story.node.store().read()?;
    let mut processes = state.processes.iter();
    let used = processes
        .find(|process| pids.get("cuda-app") == Some(&process.id.pid.unsigned_abs()))
        .map(|process| (process.used_mib, process.limit_mib))
        .context("the greedy pod has no context")?;
    let limit = used.1.context("the greedy pod has no limit")?;
    ensure!(limit == 7680 && used.0 <= limit, "it has {used:?} MiB of 7680");
    let log = pod.log("cuda-app");
    let line = log.lines().find(|line| line.contains("OUT_OF_MEMORY")).unwrap_or_default();
    Ok(vec![format!("greedy: {line}"), format!("{} of {limit} MiB in use", used.0)])
}

async fn unharmed(story: &Story) -> Result<Details> {
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

async fn smi(story: &Story) -> Result<Details> {
    let lines = tool(story, "nvidia-smi", &[])?;
    let clients = lines.iter().filter(|line| line.contains("M+C")).count();
    ensure!(clients == story.pods.len(), "{clients} M+C rows for {} clients", story.pods.len());
    Ok(lines)
}

async fn killed(story: &mut Story, role: Role) -> Result<Details> {
    let before = story.clients()?;
    story.node.end_role(role, Signal::KILL)?;
    story.node.start_role(role)?;
    let kubelet = story.node.kubelet();
    kubelet.wait_allocatable("nvidia.com/gpu", 5, PATIENCE).await?;
    ensure!(story.clients()? == before, "clients changed");
    let state = story.node.store().read()?;
    ensure!(state.processes.iter().all(|p| p.sticky_error.is_none()), "a client lost its server");
    Ok(vec![format!("{} clients, the same PIDs", before.len())])
}

async fn recovered(story: &mut Story) -> Result<Details> {
    story.node.kube().delete("pods", "default", "greedy").await?;
    story.pods.retain(|pod| pod.spec().name != "greedy");
    // Its half of the T4 becomes two quarters.
    let kubelet = story.node.kubelet();
    kubelet.wait_allocatable("nvidia.com/gpu", 6, PATIENCE).await?;
    let violations = kubelet.violations();
    ensure!(violations.is_empty(), "a real kubelet would have suffered: {violations:?}");
    Ok(vec!["greedy deleted: its half of the T4 is two free quarters now".to_owned()])
}

async fn label(story: &Story, config: &str) -> Result<()> {
    story.node.kube().patch_node_label(NODE, CONFIG_LABEL, config).await?;
    Ok(())
}

fn tool(story: &Story, name: &str, arguments: &[&str]) -> Result<Vec<String>> {
    let output = story.node.program(name).args(arguments).output()?;
    ensure!(output.status.success(), "{name} ended with {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(ToOwned::to_owned).collect())
}
