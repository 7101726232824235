//! The story of the ACK document: a card of 15 GiB, handed out by the scheduler in GiB.

use anyhow::{Context as _, Result, ensure};
use mpshare_testkit::simnode::{NODE, Role};
use rustix::process::Signal;
use serde_json::Value;

use super::scenes::{Details, client, unharmed};
use super::{PATIENCE, Story, log, tool};
use crate::manifests;
use crate::screen::Screen;

const MEMORY: &str = "aliyun.com/gpu-mem";
const JOB: &str = "mps-sample";

/// Plays all scenes; `false` when one wasn't seen.
pub(super) async fn all(story: &mut Story, screen: &mut Screen) -> bool {
    screen.chapter("A node with one card of 15 GiB, and the ACK document");
    scene!(screen, "label ack.node.gpu.schedule=mps: 15 units of 1 GiB", labelled(story).await);
    scene!(screen, "kubectl inspect cgpu: 0/15", inspect(story, "0/15 (0%)").await);
    screen.chapter("The document's Job asks for 7 GiB");
    scene!(screen, "its pod runs, bound to the card by the scheduler extender", job(story).await);
    scene!(screen, "nvidia-smi shows the server and the M+C client", smi(story));
    scene!(screen, "kubectl inspect cgpu: 7/15 (46%)", inspect(story, "7/15 (46%)").await);
    screen.chapter("More pods than the card has room for");
    scene!(screen, "a second pod with 7 GiB is refused the eighth", greedy(story).await);
    scene!(screen, "the Job on the same card didn't notice", unharmed(story));
    scene!(screen, "a pod for 2 GiB waits, and its Event says why", waits(story).await);
    screen.chapter("The scheduler extender dies");
    scene!(screen, "kill -9: the next pod waits and is told so", without_extender(story).await);
    scene!(screen, "started again, it binds that pod to the last GiB", last_unit(story).await);
    screen.chapter("Memory comes back");
    scene!(screen, "the Job is deleted: the pod for 2 GiB runs", room(story).await);
    scene!(screen, "all pods deleted: kubectl inspect cgpu: 0/15", emptied(story).await);
    true
}

async fn labelled(story: &mut Story) -> Result<Details> {
    let cards = tool(story, "nvidia-smi", &["-L"])?;
    manifests::apply(story.node.kube(), "ack/configmap.yaml").await?;
    story.node.start_product()?;
    story.node.kube().patch_node_label(NODE, "ack.node.gpu.schedule", "mps").await?;
    story.node.kubelet().wait_allocatable(MEMORY, 15, PATIENCE).await?;
    let mut details = cards;
    details.push(format!("kubectl label node {NODE} ack.node.gpu.schedule=mps"));
    details.push(format!("{MEMORY}:  15"));
    Ok(details)
}

/// The table, once its sum is as expected.
async fn inspect(story: &Story, sum: &str) -> Result<Details> {
    let table = || tool(story, "kubectl-inspect-cgpu", &[]);
    story
        .wait_for(&format!("`{sum}` in kubectl inspect cgpu"), || {
            table().is_ok_and(|lines| lines.iter().any(|line| line.trim_end() == sum))
        })
        .await?;
    let mut details = vec!["$ kubectl inspect cgpu".to_owned()];
    details.extend(table()?.into_iter().map(|line| line.trim_end().to_owned()));
    Ok(details)
}

async fn job(story: &mut Story) -> Result<Details> {
    let name = manifests::apply_job(story.node.kube(), "ack/job.yaml").await?;
    let pod = story.running(&name, "holding").await?;
    let client = client(story, &pod)?;
    let limit = client.limit_mib.with_context(|| format!("{name} has no limit"))?;
    ensure!(limit == 7168, "its limit is {limit} MiB");
    let object = story.node.kube().get("pods", "default", &name).unwrap_or_default();
    let place = object.pointer("/metadata/annotations/mpshare.io~1allocation");
    let place = place.and_then(Value::as_str).context("its annotation names no card")?;
    ensure!(place.contains(&client.gpu), "it is on {}, and annotated with {place}", client.gpu);
    Ok(vec![
        format!("kubectl apply -f examples/ack/job.yaml: {name}"),
        format!("mpshare.io/allocation: {place}"),
        format!("held to {limit} MiB by the driver"),
    ])
}

fn smi(story: &Story) -> Result<Details> {
    let lines = tool(story, "nvidia-smi", &[])?;
    for wanted in ["nvidia-cuda-mps-server", "M+C"] {
        let rows = lines.iter().filter(|line| line.contains(wanted)).count();
        ensure!(rows == 1, "{rows} rows with `{wanted}`");
    }
    Ok(lines)
}

async fn greedy(story: &mut Story) -> Result<Details> {
    manifests::apply(story.node.kube(), "demo/pod-greedy-7gib.yaml").await?;
    let pod = story.running("greedy-7gib", "CUDA_ERROR_OUT_OF_MEMORY").await?;
    let client = client(story, &pod)?;
    let (used, limit) = (client.used_mib, client.limit_mib);
    ensure!(limit == Some(7168) && used <= 7168, "it has {used} MiB, limit {limit:?}");
    let log = log(&pod);
    let line = log.lines().find(|line| line.contains("OUT_OF_MEMORY")).unwrap_or_default();
    Ok(vec![format!("greedy-7gib: {line}"), format!("{used} of 7168 MiB in use, context included")])
}

async fn waits(story: &Story) -> Result<Details> {
    manifests::apply(story.node.kube(), "demo/pod-2gib.yaml").await?;
    let event = event(story, "mem-2gib", "14 of 15 GiB allocated on GPU0").await?;
    let mut details = vec![format!("FailedScheduling: {event}")];
    details.extend(inspect(story, "14/15 (93%)").await?);
    Ok(details)
}

async fn without_extender(story: &mut Story) -> Result<Details> {
    story.node.end_role(Role::SchedulerExtender, Signal::KILL)?;
    manifests::apply(story.node.kube(), "demo/pod-1gib.yaml").await?;
    let event = event(story, "mem-1gib", "Post").await?;
    Ok(vec![format!("FailedScheduling: {event}")])
}

async fn last_unit(story: &mut Story) -> Result<Details> {
    story.node.start_role(Role::SchedulerExtender)?;
    story.running("mem-1gib", "holding").await?;
    let mut details = inspect(story, "15/15 (100%)").await?;
    let event = event(story, "mem-2gib", "15 of 15 GiB allocated on GPU0").await?;
    details.push(format!("mem-2gib still waits: {event}"));
    Ok(details)
}

async fn room(story: &mut Story) -> Result<Details> {
    story.node.kube().delete("jobs", "default", JOB).await?;
    end(story, JOB).await?;
    story.running("mem-2gib", "holding").await?;
    inspect(story, "10/15 (66%)").await
}

async fn emptied(story: &mut Story) -> Result<Details> {
    end(story, "").await?;
    let details = inspect(story, "0/15 (0%)").await?;
    let violations = story.node.kubelet().violations();
    ensure!(violations.is_empty(), "a real kubelet would have suffered: {violations:?}");
    Ok(details)
}

/// Deletes the pods whose names begin like this, and waits for their end.
async fn end(story: &mut Story, prefix: &str) -> Result<()> {
    let (ending, left): (Vec<_>, Vec<_>) =
        story.pods.drain(..).partition(|pod| pod.spec().name.starts_with(prefix));
    story.pods = left;
    for pod in &ending {
        story.node.kube().delete("pods", "default", &pod.spec().name).await?;
    }
    for pod in &ending {
        pod.wait_gone(PATIENCE).await?;
    }
    Ok(())
}

/// The newest Event of a pod that contains a text.
async fn event(story: &Story, pod: &str, text: &str) -> Result<String> {
    let find = || {
        let events = story.node.kube().events_of("Pod", pod);
        let mut messages = events.iter().rev().filter_map(|event| event.get("message")?.as_str());
        messages.find(|message| message.contains(text)).map(str::to_owned)
    };
    story.wait_for(&format!("an Event of `{pod}` with `{text}`"), || find().is_some()).await?;
    find().context("no Event")
}
